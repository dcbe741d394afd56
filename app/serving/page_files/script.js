const SAY = {
  en: {
    title: "Text classifier", texts: "Texts, one a line", textPairs: "Pairs of texts, one a line: text, tab, second text",
    classify: "Classify", stop: "Stop", file: "Choose a file (CSV, Excel, JSON, ...), or drop it here", column: "Column of the text (text_column), if not as in training",
    pairColumn: "Column of the second text (text_pair_column)", encoding: "Encoding (encoding), if not UTF-8", close: "Close the file", key: "API key", download: "Download CSV",
    model: (info) => `${info.model}: ${isNumber() ? "a number" : `${info.labels.length} labels`}, ${info.runtime}, ${info.device}`,
    busy: (done, all) => `${done} of ${all}`, stopped: "Stopped.", empty: "the text is empty",
    nothing: "There are no texts.", needKey: "This server needs an API key.", unreachable: "The server does not answer.",
    full: "The server is busy; waiting.", pair: "a second text is needed, after a tab", rows: (n, bad) => `${n} ${n === 1 ? "row" : "rows"}${bad ? `, ${bad} of them invalid: see the column reason` : ""}.`, uploading: "The server reads the file …",
    shown: (n, all) => `The first ${n} of ${all} rows are shown; the file has all.`, abstain: (part) => (part ? `sure only of ${part.label}${part.score ? ` (${(100 * part.score).toFixed(1)} %)` : ""}` : "not sure enough"), noLabel: "no label",
    whole: "the lines are one text", noTexts: "Write texts above, or choose a file.",
    all: (n) => `all ${n} labels`, why: "Why?", explaining: "This takes a moment …", hide: "Hide", raises: "for", lowers: "against", up: "raises it", down: "lowers it", and: ", ", colon: ": ",
    read: ({ tokens, cut }, ranges, n, windows) => `${cut ? "Only in part" : "All"}: ${ranges} of ${n} characters were read, as ${tokens} tokens${windows > 1 ? ` in ${windows} windows` : ""}.${cut ? " The model saw nothing of the others." : ""}`,
  },
  zh: {
    title: "文本分类", texts: "文本，每行一条", textPairs: "文本对，每行一对：第一段、制表符、第二段",
    classify: "分类", stop: "停止", file: "选择文件（CSV、Excel、JSON 等），或拖到这里", column: "文本所在的列（text_column，与训练时不同才填）",
    pairColumn: "第二段文本所在的列（text_pair_column）", encoding: "文件编码（encoding，不是 UTF-8 才填）", close: "关闭文件", key: "API 密钥", download: "下载 CSV",
    model: (info) => `${info.model}：${isNumber() ? "一个数" : `${info.labels.length} 个标签`}，${info.runtime}，${info.device}`,
    busy: (done, all) => `已完成 ${done} / ${all}`, stopped: "已停止。", empty: "文本为空",
    nothing: "没有文本。", needKey: "此服务器需要 API 密钥。", unreachable: "服务器没有响应。",
    full: "服务器繁忙，正在等待。", pair: "制表符后面需要第二段文本", rows: (n, bad) => `共 ${n} 行${bad ? `，其中 ${bad} 行无效：见 reason 列` : ""}。`, uploading: "服务器正在处理文件……",
    shown: (n, all) => `只显示前 ${n} 行，共 ${all} 行；文件中有全部结果。`, abstain: (part) => (part ? `只能确定是${part.label}${part.score ? `（${(100 * part.score).toFixed(1)} %）` : ""}` : "把握不够"), noLabel: "没有标签",
    whole: "所有行合为一条文本", noTexts: "请在上面输入文本，或选择文件。",
    all: (n) => `全部 ${n} 个标签`, why: "为什么？", explaining: "请稍候……", hide: "收起", raises: "支持", lowers: "反对", up: "使其变大", down: "使其变小", and: "、", colon: "：",
    read: ({ tokens, cut }, ranges, n, windows) => `${cut ? "只读了一部分" : "全部读完"}：共 ${n} 个字符，读了第 ${ranges} 个，${tokens} 个 token${windows > 1 ? `，分 ${windows} 个窗口` : ""}。${cut ? "其余内容模型没有看到。" : ""}`,
  },
};
// Longer texts are shown with what the model read of them.
const MAX_SHOWN = 200, MAX_BARS = 8, CHUNK = 32, LONG = 300;
let info = null, file = null, labelled = null, results = [], stopping = false;

function showLanguage() {
  showWords();
  if (info?.pairs) at("texts-label").textContent = say("textPairs");
  at("model").textContent = info ? say("model", info) : "";
}

function showStatus(text, bad = false) {
  at("status").textContent = text;
  at("status").className = bad ? "bad" : "";
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

function openFile(chosen) {
  file = chosen;
  at("pair").hidden = !info?.pairs;
  at("file-name").textContent = file.name;
  at("table").hidden = false;
  at("texts").disabled = true;
}

function closeFile() {
  file = null;
  at("file").value = "";
  at("table").hidden = true;
  at("texts").disabled = false;
}

function wantedRows() {
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
      const answers = await call("predict", { inputs, read: true });
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

// The server reads the file as in the run's training, and answers with it and its labels as CSV.
async function runFile() {
  results = [];
  at("results").replaceChildren();
  setBusy(true);
  at("stop").hidden = true;
  showStatus(say("uploading"));
  try {
    const wanted = new URLSearchParams({ name: file.name });
    if (at("column").value) wanted.set("text_column", at("column").value);
    if (info.pairs && at("pair-column").value) wanted.set("text_pair_column", at("pair-column").value);
    if (at("encoding").value) wanted.set("encoding", at("encoding").value);
    const answer = await ask(`predict_file?${wanted}`, file, "application/octet-stream");
    const { rows, invalid, labels } = JSON.parse(answer.headers.get("X-Summary"));
    labelled = await answer.text();
    setBusy(false);
    at("counts").textContent = isNumber() ? "" : labels.map(([label, count]) => `${label} ${count}`).join(" · ");
    showStatus(say("rows", rows, invalid));
  } catch (error) {
    setBusy(false);
    showProblem(error);
  }
}

async function run() {
  if (!info || !at("key-row").hidden) await loadInfo();
  if (!info) return;
  labelled = null;
  if (file) { await runFile(); return; }
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
  at("done").hidden = busy || !(labelled || results.some((row) => row.labels));
  at("counts").textContent = "";
  if (isNumber()) return;
  const counts = new Map();
  for (const row of results) for (const { label } of chosen(row)) counts.set(label, (counts.get(label) ?? 0) + 1);
  const most = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  const none = results.filter((row) => row.labels && !chosen(row).length).length;
  const shares = none ? [...most, [say("noLabel"), none]] : most;
  at("counts").textContent = shares.map(([label, count]) => `${label} ${count}`).join(" · ");
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
  item.append(whyButton(row, item));
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
    if (words.length) parts.push(element("p", "note", `${name}${say("colon")}${words.map(({ text, value }) => `${text} ${value > 0 ? "+" : ""}${value.toFixed(2)}`).join(say("and"))}`));
  });
  return [...parts, element("p", is_good ? "note" : "warning", verdict)];
}

// A model that gives a number has one output, and that is no probability.
const isNumber = () => info.labels.length === 1;
// The labels of a row: the best one, or, of a model with several labels a row, those that it chose.
const chosen = (row) => (row.labels ?? []).filter((entry, i) => entry.chosen ?? i === 0);
// The server decides; of labels in a hierarchy, a part may be sure.
const accepted = (row) => info.threshold === null || row.decision === "accept";
const sure = (row) => (row.decision === "partial" ? { label: row.sure_label, score: row.sure_probability } : null);
const decision = (row) => (info.threshold === null ? [] : [row.decision ?? ""]);
const quote = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
// A JSON list in the order of the labels, as predict.py writes it.
const labelList = (row) => `[${info.labels.filter((name) => chosen(row).some(({ label }) => label === name)).map((name) => JSON.stringify(name)).join(", ")}]`;

function csv() {
  const own = ["text", ...(info.pairs ? ["text_pair"] : [])];
  const lines = [[...own, ...(info.label_rule ? ["labels"] : ["label", "probability"]), ...(info.threshold === null ? [] : ["decision"]), ...info.labels.map((label) => `p_${label}`)]];
  if (isNumber()) lines[0] = [...own, "score"];
  for (const row of results) {
    const fields = [row.text, ...(info.pairs ? [row.pair] : [])];
    if (isNumber()) { lines.push([...fields, String(row.labels?.[0].score ?? "")]); continue; }
    const scores = new Map((row.labels ?? []).map(({ label, score }) => [label, score.toFixed(6)]));
    const [best] = chosen(row);
    const found = info.label_rule ? [row.labels ? labelList(row) : ""] : [best?.label ?? "", best?.score.toFixed(6) ?? ""];
    lines.push([...fields, ...found, ...decision(row), ...info.labels.map((label) => scores.get(label) ?? "")]);
  }
  return lines.map((line) => line.map(quote).join(",")).join("\r\n") + "\r\n";
}

function download() {
  const url = URL.createObjectURL(new Blob(["\ufeff", labelled ?? csv()], { type: "text/csv;charset=utf-8" })); // Excel needs the mark
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
