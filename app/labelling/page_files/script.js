const SAY = {
  en: {
    title: "Label texts", key: "API key", open: "Open", confirm: "Confirm", skip: "Skip", back: "Back", guess: "Guess",
    newLabel: "New label", labelName: "Name of the new label", add: "Add", cancel: "Cancel", copy: "Copy", copied: "Copied",
    train: "Train with these labels", after: "Every answer is in the file already: end the server with Ctrl-C, then run this.",
    about: (info) => `${info.file}, ${info.has_several ? "several labels a text" : "one label a text"}`,
    needKey: "This server needs an API key.", unreachable: "The server does not answer. Answers that it has taken are in the file.",
    noText: "There is no text left: all have an answer, were skipped, or are before another person.",
    earlier: (names) => `You gave this text: ${names}. Answer again, or leave it so with S.`,
    nothing: "no label", and: ", ", colon: ": ",
    lastAnswer: (names) => `Your answer: ${names}`, guessWas: (words) => `The model had guessed: ${words}`,
    guessNow: (words) => `The model guesses: ${words}`, noGuess: "The model has no guess for this text.",
    answers: "Answers", counted: (state) => `${number(state.answers)} answered, ${number(state.skipped)} skipped, ${number(state.left)} left`,
    vectors: ({ done, total }) => `The encoder has read ${number(done)} of ${number(total)} texts.`,
    quality: "How good a model would be",
    onRows: (n) => `On ${number(n)} texts that no model learns from, with 95 % intervals.`,
    noFigures: "A tenth of the answers is kept apart as test. Figures follow when a model has learnt from the others.",
    accuracy: "Accuracy", macro: "Macro F1", interval: (low, high) => `${low} to ${high}`,
    curve: "Accuracy by answers", more: (n) => `${number(n)} more answers`,
    gain: (value, low, high) => `would change the accuracy by about ${value} (${low} to ${high}).`,
    enough: "More answers of this kind hardly pay any more.",
    agreement: "Your agreement with yourself",
    ceiling: (n) => `On ${number(n)} texts that came twice. No model can be expected to agree with you more.`,
  },
  zh: {
    title: "标注文本", key: "API 密钥", open: "打开", confirm: "确认", skip: "跳过", back: "返回", guess: "猜测",
    newLabel: "新标签", labelName: "新标签的名称", add: "添加", cancel: "取消", copy: "复制", copied: "已复制",
    train: "用这些标签训练", after: "每个回答都已写入文件：用 Ctrl-C 停止服务器，再运行这条命令。",
    about: (info) => `${info.file}，${info.has_several ? "每条文本可有多个标签" : "每条文本一个标签"}`,
    needKey: "此服务器需要 API 密钥。", unreachable: "服务器没有响应。它收到的回答都在文件里。",
    noText: "没有剩余的文本：全部已回答、已跳过，或正由其他人标注。",
    earlier: (names) => `你给这条文本的标签是：${names}。可以重新回答，按 S 则保持不变。`,
    nothing: "没有标签", and: "、", colon: "：",
    lastAnswer: (names) => `你的回答：${names}`, guessWas: (words) => `模型的猜测：${words}`,
    guessNow: (words) => `模型现在的猜测：${words}`, noGuess: "模型对这条文本没有猜测。",
    answers: "回答", counted: (state) => `已回答 ${number(state.answers)} 条，跳过 ${number(state.skipped)} 条，还剩 ${number(state.left)} 条`,
    vectors: ({ done, total }) => `编码器已读 ${number(done)} / ${number(total)} 条文本。`,
    quality: "模型会有多好",
    onRows: (n) => `在 ${number(n)} 条不参与学习的文本上计算，附 95 % 置信区间。`,
    noFigures: "十分之一的回答留作测试。模型从其余回答中学到东西之后，这里才有指标。",
    accuracy: "准确率", macro: "宏平均 F1", interval: (low, high) => `${low} 至 ${high}`,
    curve: "准确率随回答数的变化", more: (n) => `再回答 ${number(n)} 条`,
    gain: (value, low, high) => `准确率大约变化 ${value}（${low} 至 ${high}）。`,
    enough: "继续这样标注，收益已经很小。",
    agreement: "你与自己的一致程度",
    ceiling: (n) => `根据出现过两次的 ${number(n)} 条文本。不能指望模型与你的一致程度更高。`,
  },
};
// The keys of labels, in their order; S, B, G and N have another meaning
const LABEL_KEYS = "1234567890qwertyuiopadfhjklzxcvm";
const MANY_LABELS = 8, LONG_TEXT = 200; // from these on, labels and characters are smaller
const POLL_SECONDS = 2; // while the encoder still reads
const GUESSES_SHOWN = 3;
const person = ownName();
let info = null, state = null;
let current = null; // the text that is shown
let chosen = new Set(); // its labels, where a text may have several
let last = null; // the text that was answered last, with its labels and the guess
let isEarlier = false; // whether the person has gone back to this text
let isBusy = false, isPolling = false;
let numRefreshed = 0;

// A name for this browser, by which the server gives two people different texts
function ownName() {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  const name = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const kept = localStorage.getItem("person");
    if (kept) return kept;
    localStorage.setItem("person", name);
  } catch { /* a browser without storage gets another name when the page is loaded again */ }
  return name;
}

const number = (value) => value.toLocaleString("en-US");
const share = (value) => value.toFixed(3);
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
const listed = (names) => (names.length ? names.join(say("and")) : say("nothing"));

function guessWords(guess) {
  const best = Object.entries(guess).sort((a, b) => b[1] - a[1]).slice(0, GUESSES_SHOWN);
  return best.map(([name, probability]) => `${name} ${Math.round(100 * probability)} %`).join(say("and"));
}

function showStatus(text, bad = false) {
  at("status").textContent = text;
  at("status").className = bad ? "bad" : "";
}

function showProblem(error) {
  if (error.status === 401) at("key-row").hidden = false;
  if (!error.status) console.info(error);
  showStatus(error.status === 401 ? say("needKey") : error.status ? error.message : say("unreachable"), true);
}

async function load() {
  try {
    info = await call("info");
    at("key-row").hidden = true;
    at("columns").hidden = false;
    await move("next");
  } catch (error) {
    showProblem(error);
  }
  showLanguage();
}

// Asks the server for the text that follows. Keys that are pressed before it is there do nothing.
async function move(path, body) {
  if (isBusy) return null;
  isBusy = true;
  let answer = null;
  try {
    answer = await call(path, { person, ...body });
    showNext(answer.text, path === "back");
    showStatus("");
  } catch (error) {
    showProblem(error);
    // The text may have another answer by now: that of another person, or of another tab of this browser
    if (error.status === 422 && (path === "answer" || path === "skip")) showNext((await call("next", { person })).text);
  } finally {
    isBusy = false;
  }
  return answer;
}

function showNext(text, hasAnswer = false) {
  current = text;
  isEarlier = hasAnswer;
  chosen = new Set(current?.labels);
  at("own-guess").hidden = true;
  showText();
  refresh();
}

async function answer(labels) {
  if (!current) return;
  const answered = current;
  const reply = await move("answer", { number: answered.number, labels });
  if (!reply) return;
  last = { text: answered.text, labels, guess: reply.guess };
  showLast();
}

function choose(name) {
  if (!info.has_several) { answer([name]); return; }
  if (!chosen.delete(name)) chosen.add(name);
  showLabels();
}

const confirmLabels = () => answer(labelNames().filter((name) => chosen.has(name)));

// A text that the person has gone back to keeps its answer
function skip() {
  if (current) move("skip", { number: current.number });
}

async function showGuess() {
  if (!current || !info.asks_guess) return;
  try {
    const { guess } = await call("guess", { person, number: current.number });
    const words = guessWords(guess);
    at("own-guess").textContent = words ? say("guessNow", words) : say("noGuess");
    at("own-guess").hidden = false;
  } catch (error) {
    showProblem(error);
  }
}

async function addLabel() {
  const name = at("new-name").value.trim();
  if (!name) return;
  try {
    state = await call("labels", { person, name });
    at("new-name").value = "";
    at("new-row").hidden = true;
    showStatus("");
    showLabels();
    showPanel();
  } catch (error) {
    showProblem(error);
  }
}

// The panel follows after the text, so that its figures hold nobody up.
async function refresh() {
  numRefreshed += 1;
  const ownNumber = numRefreshed;
  try {
    const newState = await call("status");
    // A later answer may have come first
    if (ownNumber !== numRefreshed) return;
    state = newState;
    showLabels();
    showPanel();
  } catch (error) {
    showProblem(error);
    return;
  }
  if (isPolling || state.vectors.done >= state.vectors.total) return;
  isPolling = true;
  setTimeout(() => { isPolling = false; refresh(); }, 1000 * POLL_SECONDS);
}

const labelNames = () => (state ? state.labels.map(({ name }) => name) : []);

function showLanguage() {
  showWords();
  if (!info) return;
  at("model").textContent = say("about", info);
  at("ask-guess").hidden = !info.asks_guess;
  at("confirm").hidden = !info.has_several;
  showText();
  showLabels();
  showLast();
  showPanel();
}

// Texts come from anywhere: they are shown as text, never as HTML.
function showText() {
  at("text").textContent = current ? current.text : say("noText");
  at("text").className = !current ? "message" : current.text.length > LONG_TEXT ? "long" : "";
  at("pair").hidden = !current?.pair;
  at("pair").textContent = current?.pair ?? "";
  at("earlier").hidden = !isEarlier;
  at("earlier").textContent = isEarlier ? say("earlier", listed(current.labels)) : "";
  at("card").scrollTop = 0;
  showLabels();
}

function showLabels() {
  const names = labelNames();
  const buttons = names.map((name, index) => {
    const button = element("button", "");
    button.type = "button";
    button.disabled = !current;
    button.setAttribute("aria-pressed", chosen.has(name));
    if (LABEL_KEYS[index]) button.append(element("kbd", "", LABEL_KEYS[index].toUpperCase()));
    button.append(name);
    button.onclick = (event) => { leave(event); choose(name); };
    return button;
  });
  at("labels").className = names.length > MANY_LABELS ? "many" : "";
  at("labels").replaceChildren(...buttons);
}

function showLast() {
  at("last").hidden = !last;
  if (!last) return;
  at("last-text").textContent = last.text;
  at("last-answer").textContent = say("lastAnswer", listed(last.labels));
  const words = guessWords(last.guess);
  at("last-guess").textContent = words ? say("guessWas", words) : "";
  const [best] = Object.entries(last.guess).sort((a, b) => b[1] - a[1]);
  at("last-guess").className = best && !last.labels.includes(best[0]) ? "note differs" : "note";
}

function showPanel() {
  if (!state) return;
  at("counts").replaceChildren(element("h2", "", say("answers")), element("p", "", say("counted", state)), countBars());
  const parts = [element("h2", "", say("quality"))];
  if (state.vectors.done < state.vectors.total) parts.push(element("p", "note", say("vectors", state.vectors)));
  if (state.message) parts.push(element("p", "bad", state.message));
  if (state.kept) {
    parts.push(element("p", "note", say("onRows", state.kept.rows)), figure("accuracy", state.kept.accuracy));
    if (state.kept.macro_f1) parts.push(figure("macro", state.kept.macro_f1));
  } else parts.push(element("p", "note", say("noFigures")));
  if (state.enough) parts.push(element("p", "enough", say("enough")));
  if (state.gain) {
    const { answers, value, low, high } = state.gain;
    parts.push(element("h2", "", say("more", answers)), element("p", "", say("gain", signed(value), signed(low), signed(high))));
  }
  if (state.curve.length > 1) parts.push(element("h2", "", say("curve")), curve(state.curve));
  if (state.agreement) {
    parts.push(element("h2", "", say("agreement")), figure("agreement", state.agreement, true));
    parts.push(element("p", "note", say("ceiling", state.agreement.rows)));
  }
  at("figures").replaceChildren(...parts);
  at("finish").hidden = !state.command;
  // A line ends between two words, not at the dashes of an option
  const words = (state.command ?? "").split(" ").flatMap((word) => [element("span", "word", word), " "]);
  at("command").replaceChildren(...words);
}

function countBars() {
  const bars = element("div", "bars");
  const most = Math.max(1, ...state.labels.map(({ count }) => count));
  for (const { name, count } of state.labels) {
    const label = element("span", "name", name), track = element("div", "track"), bar = element("div", "bar");
    label.title = name;
    bar.style.width = `${(100 * count) / most}%`;
    track.append(bar);
    bars.append(label, track, element("span", "share", number(count)));
  }
  return bars;
}

// A figure with its interval, as numbers and as a bar from 0 to 1
function figure(name, { value, low, high }, hasHeading = false) {
  const box = element("div", "figure");
  const interval = element("div", "interval"), range = element("div", "range"), point = element("div", "point");
  range.style.left = `${100 * low}%`;
  range.style.width = `${100 * (high - low)}%`;
  point.style.left = `${100 * value}%`;
  interval.append(range, point);
  box.append(element("span", "", hasHeading ? "" : say(name)));
  box.append(element("span", "value", `${share(value)} (${say("interval", share(low), share(high))})`), interval);
  return box;
}

const SVG = "http://www.w3.org/2000/svg";
function svgElement(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Accuracy (from the tenth below the lowest one to 1) over the number of answers (from 0)
function curve(points) {
  const width = 340, height = 150, left = 30, right = 12, top = 8, bottom = 20;
  const most = points.at(-1)[0], lowest = Math.floor(10 * Math.min(0.9, ...points.map(([, value]) => value))) / 10;
  const x = (answers) => left + ((width - left - right) * answers) / most;
  const y = (value) => height - bottom - ((height - top - bottom) * (value - lowest)) / (1 - lowest);
  const drawing = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": say("curve") });
  for (const value of [lowest, (lowest + 1) / 2, 1]) {
    drawing.append(svgElement("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    drawing.append(svgElement("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, String(Math.round(100 * value) / 100)));
  }
  for (const answers of [0, Math.round(most / 2), most]) {
    drawing.append(svgElement("text", { x: x(answers), y: height - 4, "text-anchor": "middle" }, number(answers)));
  }
  drawing.append(svgElement("polyline", { class: "line", points: points.map(([answers, value]) => `${x(answers)},${y(value)}`).join(" ") }));
  const [answers, value] = points.at(-1);
  drawing.append(svgElement("circle", { class: "dot", cx: x(answers), cy: y(value), r: 3.5 }));
  return drawing;
}

// After a click the keyboard is for the page again. A button that was reached by Tab keeps it.
function leave(event) {
  if (event.detail) event.currentTarget.blur();
}

// The key as it is printed on the keyboard. With a Chinese input method it is "Process", or full-width.
function keyOf(event) {
  const code = /^(?:Digit|Numpad|Key)(.)$/.exec(event.code);
  if (event.key === "Process" && code) return code[1].toLowerCase();
  return event.key.normalize("NFKC").toLowerCase();
}

function openNewLabel() {
  at("new-row").hidden = false;
  at("new-name").focus();
}

function closeNewLabel() {
  at("new-row").hidden = true;
  document.activeElement.blur();
}

const ACTIONS = { s: skip, b: () => move("back"), g: showGuess, n: openNewLabel };

document.onkeydown = (event) => {
  if (event.target === at("new-name") && event.key === "Escape" && !event.isComposing) closeNewLabel();
  const isTyping = event.target.tagName === "INPUT";
  if (!info || isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = keyOf(event), place = LABEL_KEYS.indexOf(key);
  const name = key.length === 1 && place >= 0 ? labelNames()[place] : undefined;
  if (key === "enter" && info.has_several && event.target.tagName !== "BUTTON") confirmLabels();
  else if (name !== undefined && current) choose(name);
  else if (ACTIONS[key]) ACTIONS[key]();
  else return;
  event.preventDefault();
};
at("language").onclick = (event) => { leave(event); language = language === "zh" ? "en" : "zh"; showLanguage(); };
at("confirm").onclick = (event) => { leave(event); confirmLabels(); };
at("skip").onclick = (event) => { leave(event); skip(); };
at("back").onclick = (event) => { leave(event); move("back"); };
at("ask-guess").onclick = (event) => { leave(event); showGuess(); };
at("new").onclick = openNewLabel;
at("new-row").onsubmit = (event) => { event.preventDefault(); addLabel(); };
at("cancel").onclick = closeNewLabel;
at("copy").onclick = async (event) => {
  leave(event);
  const range = document.createRange();
  range.selectNodeContents(at("command"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  // The clipboard is there on https and on this machine only; the command is selected in any case
  if (!navigator.clipboard) return;
  await navigator.clipboard.writeText(state.command);
  at("copy").textContent = say("copied");
};
// The key lasts as long as this tab of the browser
at("key-row").onsubmit = (event) => {
  event.preventDefault();
  try { sessionStorage.setItem("key", at("key").value); } catch { /* it is asked for again */ }
  load();
};
try { at("key").value = sessionStorage.getItem("key") ?? ""; } catch { /* it is asked for */ }
showLanguage();
load();
