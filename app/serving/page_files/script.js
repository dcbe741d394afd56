"use strict";
const SAY = {
  en: {
    title: "Text classifier", texts: "Texts, one a line", textPairs: "Pairs of texts, one a line: text, tab, second text",
    classify: "Classify", stop: "Stop", file: "Choose a CSV file, or drop it here", column: "Column of the text",
    pairColumn: "Column of the second text", close: "Close the file", key: "API key", download: "Download CSV",
    model: (info) => `${info.model}: ${isNumber() ? "a number" : `${info.labels.length} labels`}, ${info.runtime}, ${info.device}`,
    busy: (done, all) => `${done} of ${all}`, stopped: "Stopped.", empty: "the text is empty",
    nothing: "There are no texts.", needKey: "This server needs an API key.", unreachable: "The server does not answer.",
    full: "The server is busy; waiting.", pair: "a second text is needed, after a tab", rows: (n) => `${n} rows`,
    shown: (n, all) => `The first ${n} of ${all} rows are shown; the file has all.`, column_n: (n) => `column ${n}`, abstain: (part) => (part ? `sure only of ${part.label}${part.score ? ` (${(100 * part.score).toFixed(1)} %)` : ""}` : "not sure enough"), noLabel: "no label",
    whole: "the lines are one text", examples: "Examples:", noTexts: "Write texts above, or choose a file.",
    all: (n) => `all ${n} labels`, why: "Why?", explaining: "This takes a moment …", hide: "Hide", raises: "for", lowers: "against", up: "raises it", down: "lowers it", and: ", ",
    read: ({ tokens, cut }, ranges, n, windows) => `${cut ? "Only in part" : "All"}: ${ranges} of ${n} characters were read, as ${tokens} tokens${windows > 1 ? ` in ${windows} windows` : ""}.${cut ? " The model saw nothing of the others." : ""}`,
    nearest: ({ similarity, label, text, where }) => `In training: ${similarity.toFixed(4)} ${[label].flat().join(", ") || "no label"}: ${text} (${where})`,
    encoding: (name) => `${name}: found neither UTF-8 nor GB18030 text: save the file in UTF-8.`,
    missing: (name) => `The model was trained on the column "${name}", which this file does not have: choose the column.`,
  },
  zh: {
    title: "文本分类", texts: "文本，每行一条", textPairs: "文本对，每行一对：第一段、制表符、第二段",
    classify: "分类", stop: "停止", file: "选择 CSV 文件，或拖到这里", column: "文本所在的列",
    pairColumn: "第二段文本所在的列", close: "关闭文件", key: "API 密钥", download: "下载 CSV",
    model: (info) => `${info.model}：${isNumber() ? "一个数" : `${info.labels.length} 个标签`}，${info.runtime}，${info.device}`,
    busy: (done, all) => `已完成 ${done} / ${all}`, stopped: "已停止。", empty: "文本为空",
    nothing: "没有文本。", needKey: "此服务器需要 API 密钥。", unreachable: "服务器没有响应。",
    full: "服务器繁忙，正在等待。", pair: "制表符后面需要第二段文本", rows: (n) => `${n} 行`,
    shown: (n, all) => `只显示前 ${n} 行，共 ${all} 行；文件中有全部结果。`, column_n: (n) => `第 ${n} 列`, abstain: (part) => (part ? `只能确定是${part.label}${part.score ? `（${(100 * part.score).toFixed(1)} %）` : ""}` : "把握不够"), noLabel: "没有标签",
    whole: "所有行合为一条文本", examples: "示例：", noTexts: "请在上面输入文本，或选择文件。",
    all: (n) => `全部 ${n} 个标签`, why: "为什么？", explaining: "请稍候……", hide: "收起", raises: "支持", lowers: "反对", up: "使其变大", down: "使其变小", and: "、",
    read: ({ tokens, cut }, ranges, n, windows) => `${cut ? "只读了一部分" : "全部读完"}：共 ${n} 个字符，读了第 ${ranges} 个，${tokens} 个 token${windows > 1 ? `，分 ${windows} 个窗口` : ""}。${cut ? "其余内容模型没有看到。" : ""}`,
    nearest: ({ similarity, label, text, where }) => `训练集：${similarity.toFixed(4)} ${[label].flat().join("、") || "没有标签"}：${text}（${where}）`,
    encoding: (name) => `${name}：既不是 UTF-8，也不是 GB18030 文本：请把文件另存为 UTF-8。`,
    missing: (name) => `模型训练时用的是“${name}”列，这个文件里没有：请选择一列。`,
  },
};
const TEXT_NAMES = ["text", "content", "sentence", "review", "comment", "文本", "内容", "评论", "正文", "微博中文内容"];
// Longer texts are shown with what the model read of them.
const MAX_SHOWN = 200, MAX_BARS = 8, MAX_NEAREST = 3, CHUNK = 32, LONG = 300;
const at = (id) => document.getElementById(id);
let language = navigator.language.startsWith("zh") ? "zh" : "en";
let info = null, table = null, results = [], stopping = false;

function say(name, ...values) {
  const words = SAY[language][name];
  return typeof words === "function" ? words(...values) : words;
}

function showLanguage() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-say]")) element.textContent = say(element.dataset.say);
  if (info?.pairs) at("texts-label").textContent = say("textPairs");
  document.title = say("title");
  at("language").textContent = language === "zh" ? "English" : "中文";
  at("model").textContent = info ? say("model", info) : "";
  showExamples();
}

// A click classifies the example alone.
function showExamples() {
  const examples = info?.examples ?? [];
  at("examples").hidden = !examples.length;
  at("examples").replaceChildren(say("examples"), ...examples.map((example) => {
    const text = [example].flat().join("\t"), button = element("button", "plain", text);
    button.type = "button";
    button.onclick = () => { closeFile(); at("whole").checked = false; at("texts").value = text.replace(/[\r\n]+/g, " "); run(); };
    return button;
  }));
}

function showStatus(text, bad = false) {
  at("status").textContent = text;
  at("status").className = bad ? "bad" : "";
}

async function call(path, body) {
  const headers = at("key").value ? { Authorization: `Bearer ${at("key").value}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (answer.ok) return value;
  throw Object.assign(new Error(value.error), { status: answer.status });
}

async function loadInfo() {
  try {
    info = await call("info");
    at("key-row").hidden = true;
    showStatus("");
  } catch (error) {
    showProblem(error);
  }
  showLanguage();
}

function showProblem(error) {
  if (error.status === 401) at("key-row").hidden = false;
  showStatus(error.status === 401 ? say("needKey") : error.status ? error.message : say("unreachable"), true);
}

// RFC 4180: quotes enclose fields, and are doubled inside them.
function parseCsv(text, comma, quotes) {
  const rows = [];
  let row = [], field = "", quoted = false;
  const endRow = () => { row.push(field); if (row.length > 1 || field !== "") rows.push(row); row = []; field = ""; };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') { field += c; i++; }
      else quoted = false;
    } else if (c === '"' && field === "" && quotes) quoted = true;
    else if (c === comma) { row.push(field); field = ""; }
    else if (c === "\n" || c === "\r") { if (c === "\r" && text[i + 1] === "\n") i++; endRow(); }
    else field += c;
  }
  if (field !== "" || row.length) endRow();
  return rows;
}

// In the encoding that the run recorded, else UTF-8, else GB18030 where the text shows it; null where none fits.
function decode(bytes, recorded) {
  const encodings = recorded && !/^utf[-_]?8/i.test(recorded) ? [recorded, "utf-8", "gb18030"] : ["utf-8", "gb18030"];
  for (const encoding of encodings) {
    let text = null;
    // Also a name that browsers do not know
    try { text = new TextDecoder(encoding, { fatal: true }).decode(bytes); } catch { continue; }
    if (encoding !== "gb18030" || encoding === recorded || isGb18030(text, new Uint8Array(bytes))) return text;
  }
  return null;
}

// Whether a text that was read as GB18030 was written so, and no line of it in UTF-8; see app/data/file_encoding.py.
function isGb18030(text, bytes) {
  for (let start = 0, end; start < bytes.length; start = end + 1) {
    end = bytes.indexOf(10, start);
    if (end < 0) end = bytes.length;
    try { if (/[^\0-\u07ff]/.test(new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(start, end)))) return false; } catch { /* not UTF-8 */ }
  }
  const row = (number) => new TextDecoder("gbk").decode(Uint8Array.from({ length: 188 }, (_, i) => (i % 2 ? 0xa1 + (i >> 1) : number)));
  const rows = (from, to) => Array.from({ length: to - from }, (_, i) => row(from + i)).join("");
  const late = new Set(rows(0xc9, 0xd8)), common = new Set([...rows(0xa1, 0xa4), ...rows(0xb0, 0xc9), ...late]);
  const wide = [...text.slice(0, 1e6)].filter((c) => c > "\x7f"), known = wide.filter((c) => common.has(c));
  return known.filter((c) => late.has(c)).length >= 0.15 * known.length && known.length >= 0.8 * wide.length;
}

// Between the fields of a table; see app/data/file_formats.py.
const SEPARATORS = { csv: ",", tsv: "\t", semicolon: ";", pipe: "|" };
const suffixOf = (name) => (name.match(/\.[^.]*$/)?.[0] ?? "").toLowerCase();

// How the run would read a file of this name: tsv, csv, or text, one text a line. See app/data/read.py.
function formatOf(name, text, reading) {
  const suffix = suffixOf(name), isNamedAlike = suffix === suffixOf(reading.train ?? "");
  if (reading.format in SEPARATORS && isNamedAlike) return reading.format;
  if (suffix === ".txt") return isNamedAlike && text.split("\n", 1)[0].includes("\t") ? "tsv" : "text";
  return suffix === ".tsv" || suffix === ".tab" ? "tsv" : "csv";
}

// The names of the columns and the rows of a table, and the columns to choose; `missing` is a column of the run that
// the table does not have.
function readTable(text, format, reading, columnName) {
  const quotes = { double: true, none: false }[reading.quoting] ?? ["csv", "semicolon"].includes(format);
  const rows = parseCsv(text, SEPARATORS[format], quotes);
  if (!rows.length) return null;
  const recorded = [reading.text_column ?? null, reading.text_pair_column ?? null];
  const isName = (name) => TEXT_NAMES.includes(name.trim().toLowerCase());
  const hasHeader = reading.header ?? (recorded.some((column) => typeof column === "string") || rows[0].some(isName));
  const header = hasHeader ? rows.shift() : null;
  const width = Math.max(...[header ?? [], ...rows.slice(0, 1000)].map((row) => row.length));
  const names = Array.from({ length: width }, (_, i) => header?.[i] ?? columnName(i));
  const place = (column) => (typeof column === "number" ? (column < width ? column : -1) : names.findIndex((name) => name.trim() === column));
  const textPlace = recorded[0] === null ? Math.max(0, names.findIndex(isName)) : place(recorded[0]);
  const pair = recorded[1] === null ? Math.min(textPlace + 1, width - 1) : place(recorded[1]);
  const missing = recorded.find((column, i) => column !== null && [textPlace, pair][i] < 0) ?? null;
  return { header, names, rows, chosen: [textPlace, pair], missing };
}

async function openFile(file) {
  // How the run read its files
  if (!info) await loadInfo();
  if (!info) return;
  const { reading } = info;
  const text = decode(await file.arrayBuffer(), reading.encoding);
  if (text === null) { showStatus(say("encoding", file.name), true); return; }
  const format = formatOf(file.name, text, reading);
  if (format === "text") { closeFile(); at("texts").value = text.replace(/\r\n?/g, "\n"); return; }
  table = readTable(text, format, reading, (i) => say("column_n", i + 1));
  if (!table) { showStatus(say("nothing"), true); return; }
  ["column", "pair-column"].forEach((id, which) => {
    at(id).replaceChildren(...table.names.map((name, i) => Object.assign(document.createElement("option"), { value: i, textContent: name })));
    at(id).selectedIndex = table.chosen[which];
  });
  at("pair").hidden = !info?.pairs;
  at("file-name").textContent = `${file.name}, ${say("rows", table.rows.length)}`;
  at("table").hidden = false;
  at("texts").disabled = true;
  showStatus(table.missing === null ? "" : say("missing", table.missing), table.missing !== null);
}

function closeFile() {
  table = null;
  at("file").value = "";
  at("table").hidden = true;
  at("texts").disabled = false;
}

function wantedRows() {
  const [first, second] = [at("column").value, at("pair-column").value];
  if (table) return table.rows.map((fields) => ({ fields, text: fields[first] ?? "", pair: info.pairs ? fields[second] ?? "" : null }));
  const lines = at("whole").checked ? [at("texts").value] : at("texts").value.split("\n");
  return lines.filter((line) => line.trim()).map((line) => {
    const tab = line.indexOf("\t");
    if (!info.pairs) return { text: line, pair: null };
    return tab < 0 ? { text: line, pair: "" } : { text: line.slice(0, tab), pair: line.slice(tab + 1) };
  });
}

const inputOf = (row) => (row.pair === null ? row.text : [row.text, row.pair]);
const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

// A request that is refused for one of its texts is sent again text by text, so that only that text has no label.
async function classify(rows) {
  const inputs = rows.map(inputOf);
  for (;;) {
    try {
      const answers = await call("predict", { inputs, read: true, ...(info.evidence ? { evidence: MAX_NEAREST } : {}) });
      rows.forEach((row, i) => Object.assign(row, answers[i]));
      return;
    } catch (error) {
      if (error.status === 429 && !stopping) { showStatus(say("full")); await wait(1); continue; }
      if (error.status !== 413 && error.status !== 422 && error.status !== 424) throw error;
      if (rows.length === 1) { rows[0].problem = error.message; return; }
    }
    for (const row of rows) await classify([row]);
    return;
  }
}

async function run() {
  if (!info || !at("key-row").hidden) await loadInfo();
  if (!info) return;
  // A column that the run was trained on is missing, and none is chosen in its place
  if (table && [at("column"), ...(info.pairs ? [at("pair-column")] : [])].some((select) => select.selectedIndex < 0)) {
    showStatus(say("missing", table.missing), true);
    return;
  }
  const rows = wantedRows();
  if (!rows.length) { showStatus(say("nothing"), true); return; }
  results = rows;
  stopping = false;
  at("results").replaceChildren();
  setBusy(true);
  try {
    const size = Math.min(CHUNK, info.max_texts);
    for (let start = 0; start < rows.length && !stopping; start += size) {
      showStatus(say("busy", start, rows.length));
      const chunk = rows.slice(start, start + size);
      for (const row of chunk) if (!row.text.trim() || row.pair === "") row.problem = say(row.text.trim() ? "pair" : "empty");
      const good = chunk.filter((row) => !row.problem);
      if (good.length) await classify(good);
      if (start < MAX_SHOWN) at("results").append(...chunk.map(shown));
    }
    showStatus(stopping ? say("stopped") : rows.length > MAX_SHOWN ? say("shown", MAX_SHOWN, rows.length) : "");
  } catch (error) {
    showProblem(error);
  }
  setBusy(false);
}

function setBusy(busy) {
  at("classify").disabled = busy;
  at("stop").hidden = !busy;
  at("done").hidden = busy || !results.some((row) => row.labels);
  at("counts").textContent = "";
  if (isNumber()) return;
  const counts = new Map();
  for (const row of results) for (const { label } of chosen(row)) counts.set(label, (counts.get(label) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  const none = results.filter((row) => row.labels && !chosen(row).length).length;
  const shares = none ? [...most, [say("noLabel"), none]] : most;
  at("counts").textContent = shares.map(([label, count]) => `${label} ${count}`).join("  ");
}

function element(name, className, text) {
  return Object.assign(document.createElement(name), { className, textContent: text ?? "" });
}

// Texts come from anywhere: they are shown as text, never as HTML.
function shown(row) {
  const item = element("li", "");
  item.append(element("p", "text", row.text));
  if (row.pair) item.append(element("p", "text second", row.pair));
  if (row.problem) item.append(element("p", "bad", row.problem));
  if (!row.labels) return item;
  row.read.texts.forEach(({ characters, ranges }) => {
    if (!row.read.cut && row.read.windows === 1 && characters <= LONG) return;
    const places = ranges.map(([first, last]) => `${first + 1}–${last}`).join(say("and")) || "0";
    item.append(element("p", row.read.cut ? "warning" : "note", say("read", row.read, places, characters, row.read.windows)));
  });
  if (isNumber()) item.append(element("p", "first", String(row.labels[0].score)));
  else item.append(...shownLabels(row));
  for (const near of row.evidence ?? []) item.append(element("p", "note", say("nearest", near)));
  if (info.explain_seconds) item.append(whyButton(row, item));
  return item;
}

// All labels with their probabilities, the chosen ones first; behind a click where there are many.
function shownLabels(row) {
  const first = chosen(row), bestFirst = [...first, ...row.labels.filter((entry) => !first.includes(entry))];
  const most = Math.max(MAX_BARS, first.length), parts = [];
  if (!first.length) parts.push(element("p", "abstain", say("noLabel")));
  if (!accepted(row)) parts.push(element("p", "abstain", say("abstain", sure(row))));
  parts.push(bars(bestFirst.slice(0, most), first));
  if (bestFirst.length > most) {
    const more = element("details", ""), summary = element("summary", "", say("all", bestFirst.length));
    more.append(summary, bars(bestFirst.slice(most), first));
    parts.push(more);
  }
  return parts;
}

function bars(entries, first) {
  const found = element("div", "bars");
  for (const { label, score } of entries) {
    const track = element("div", "track"), bar = element("div", "bar");
    bar.style.width = `${100 * score}%`;
    track.append(bar);
    const name = element("span", first.some((entry) => entry.label === label) ? "name first" : "name", label);
    name.title = label;
    found.append(name, track, element("span", "share", `${(100 * score).toFixed(1)} %`));
  }
  return found;
}

// Asks for the explanation when it is clicked, and hides it with the next click.
function whyButton(row, item) {
  const button = element("button", "plain why", say("why")), box = element("div", "explanation");
  button.type = "button";
  button.onclick = async () => {
    if (box.isConnected) { box.remove(); button.textContent = say("why"); return; }
    button.disabled = true;
    box.replaceChildren(element("p", "note", say("explaining")));
    item.append(box);
    try {
      const found = await call("explain", { inputs: row.pair === null ? row.text : { text: row.text, text_pair: row.pair }, language });
      box.replaceChildren(...found.flatMap(shownExplanation));
    } catch (error) {
      box.replaceChildren(element("p", "bad", error.status ? error.message : say("unreachable")));
    }
    button.disabled = false;
    button.textContent = say("hide");
  };
  return button;
}

function shownExplanation({ heading, verdict, is_good, notes, texts, strongest }) {
  const parts = [element("p", "first", heading), ...notes.map((note) => element("p", "note", note))];
  for (const pieces of texts) {
    const text = element("p", "text");
    for (const { text: characters, shade, value } of pieces) {
      const piece = element("span", "", characters);
      if (value !== null) piece.title = value;
      piece.style.backgroundColor = `rgba(${shade > 0 ? "230, 120, 20" : "50, 110, 220"}, ${Math.abs(shade)})`;
      text.append(piece);
    }
    parts.push(text);
  }
  strongest.forEach((words, i) => {
    const name = say(isNumber() ? ["up", "down"][i] : ["raises", "lowers"][i]);
    if (words.length) parts.push(element("p", "note", `${name}: ${words.map(({ text, value }) => `${text} ${value > 0 ? "+" : ""}${value.toFixed(2)}`).join(say("and"))}`));
  });
  return [...parts, element("p", is_good ? "note" : "warning", verdict)];
}

// A model that gives a number has one output, and that is no probability.
const isNumber = () => info.labels.length === 1;
// The labels of a row: the best one, or, of a model with several labels a row, those that it chose.
const chosen = (row) => (row.labels ?? []).filter((entry, i) => entry.chosen ?? i === 0);
// The server decides; of labels in a hierarchy, a part may be sure.
const accepted = (row) => info.threshold === null || row.decision === "accept";
const sure = (row) => (row.decision === "partial" ? { label: row.sure_label ?? row.sure_labels.join(", "), score: row.sure_probability } : null);
const decision = (row) => (info.threshold === null ? [] : [row.decision ?? ""]);
const quote = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
// A JSON list in the order of the labels, as predict.py writes it.
const labelList = (row) => `[${info.labels.filter((name) => chosen(row).some(({ label }) => label === name)).map((name) => JSON.stringify(name)).join(", ")}]`;

function csv() {
  const own = table && results[0]?.fields ? table.names : ["text", ...(info.pairs ? ["text_pair"] : [])];
  const lines = [[...own, ...(info.label_rule ? ["labels"] : ["label", "probability"]), ...(info.threshold === null ? [] : ["decision"]), ...info.labels.map((label) => `p_${label}`)]];
  if (isNumber()) lines[0] = [...own, "score"];
  for (const row of results) {
    const fields = row.fields ? own.map((_, i) => row.fields[i] ?? "") : [row.text, ...(info.pairs ? [row.pair] : [])];
    if (isNumber()) { lines.push([...fields, String(row.labels?.[0].score ?? "")]); continue; }
    const scores = new Map((row.labels ?? []).map(({ label, score }) => [label, score.toFixed(6)]));
    const [best] = chosen(row);
    const found = info.label_rule ? [row.labels ? labelList(row) : ""] : [best?.label ?? "", best?.score.toFixed(6) ?? ""];
    lines.push([...fields, ...found, ...decision(row), ...info.labels.map((label) => scores.get(label) ?? "")]);
  }
  return lines.map((line) => line.map(quote).join(",")).join("\r\n") + "\r\n";
}

function download() {
  const url = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv;charset=utf-8" })); // Excel needs the mark
  Object.assign(document.createElement("a"), { href: url, download: "labels.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

at("language").onclick = () => { language = language === "zh" ? "en" : "zh"; showLanguage(); };
at("form").onsubmit = (event) => { event.preventDefault(); run(); };
at("stop").onclick = () => { stopping = true; };
at("close").onclick = closeFile;
at("file").onchange = (event) => event.target.files[0] && openFile(event.target.files[0]);
at("download").onclick = download;
at("texts").onkeydown = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(); };
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
addEventListener("dragleave", () => document.body.classList.remove("dragging"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  if (event.dataTransfer.files[0]) openFile(event.dataTransfer.files[0]);
});
showLanguage();
loadInfo();
