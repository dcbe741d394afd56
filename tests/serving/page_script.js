// How the page reads a file: node page_script.js SCRIPT; test_page_script.py runs it.
"use strict";
const assert = require("assert");
const fs = require("fs");

// A document that holds nothing; the functions under test do not use it.
const nothing = () => new Proxy(function () {}, { get: () => () => {}, set: () => true });
Object.assign(globalThis, {
  document: { getElementById: nothing, querySelectorAll: () => [], documentElement: {}, createElement: nothing, body: nothing() },
  addEventListener: () => {},
  fetch: async () => { throw new Error("there is no server"); },
});
if (!globalThis.navigator) globalThis.navigator = { language: "en" };
const source = fs.readFileSync(process.argv[2], "utf8");
const names = "decode, formatOf, readTable, sure, say";
const { decode, formatOf, readTable, sure, say } = new Function(`${source}; return { ${names} };`)();
const read = (text, format, reading) => readTable(text, format, reading, (i) => `column ${i}`);

const titles = read("content,title\n正文,标题\n", "csv", { text_column: "title" });
assert.deepEqual([titles.chosen[0], titles.missing, titles.rows], [1, null, [["正文", "标题"]]]);
const lacking = read("content,label\n正文,标题\n", "csv", { text_column: "title" });
assert.deepEqual([lacking.chosen[0], lacking.missing], [-1, "title"]);
const numbered = read("1,2,好\n", "csv", { text_column: 2 });
assert.deepEqual([numbered.chosen[0], numbered.header], [2, null]);
const pairs = read("a,b,c\n1,2,3\n", "csv", { text_column: "c", text_pair_column: "a" });
assert.deepEqual(pairs.chosen, [2, 0]);
const guessed = read("id,内容\n1,正文\n", "csv", {});
assert.deepEqual([guessed.chosen[0], guessed.missing], [1, null]);
assert.deepEqual(read('a\t"b\n', "tsv", { header: false }).rows, [["a", '"b']]);
assert.deepEqual(read('a\t"b\tc"\n', "tsv", { header: false, quoting: "double" }).rows, [["a", "b\tc"]]);

assert.deepEqual(read('"a;b";c\n', "semicolon", { header: false }).rows, [["a;b", "c"]]);
assert.deepEqual(read('a|"b\n', "pipe", { header: false }).rows, [["a", '"b']]);

for (const [name, text, reading, format] of [
  ["new.txt", "a|b", { format: "pipe", train: "rows.txt" }, "pipe"],
  ["new.txt", "a,b", { format: "csv", train: "rows.txt" }, "csv"],
  ["new.txt", "a\tb", { train: "rows.txt" }, "tsv"],
  ["new.txt", "a\tb", { train: "rows.csv" }, "text"],
  ["new.csv", "a\tb", { format: "tsv", train: "rows.csv" }, "tsv"],
  ["new.csv", "a,b", { format: "tsv", train: "rows.tsv" }, "csv"],
  ["new.tsv", "a\tb", {}, "tsv"],
]) assert.equal(formatOf(name, text, reading), format);

assert.equal(sure({ decision: "abstain" }), null);
assert.match(say("abstain", sure({ decision: "partial", sure_label: "体育-球类", sure_probability: 0.85 })), /体育-球类.*85\.0 %/);
assert.match(say("abstain", sure({ decision: "partial", sure_labels: ["体育", "财经"] })), /体育, 财经$/);

const gb18030 = Uint8Array.from([0xbd, 0xf1, 0xcc, 0xec]);
for (const recorded of ["gb18030", "utf-8", null, "no such encoding"]) assert.equal(decode(gb18030, recorded), "今天");
assert.equal(decode(new TextEncoder().encode("今天"), null), "今天");
// UTF-8 with a bad byte, 今天 in Big5, and lines in GB18030 and UTF-8 are read as nothing
const mixed = [...gb18030, ...gb18030, 10, ...new TextEncoder().encode("今天")];
for (const bytes of [[0xe4, 0xbb, 0x8a, 0xff], [0xe4, 0xbb, 0x8a, 0xe5, 0xa4], [0xa4, 0xb5, 0xa4, 0xd1], mixed]) assert.equal(decode(Uint8Array.from(bytes), null), null);

const near = { similarity: 0.5, label: ["a", "b"], text: "好", where: "rows.csv, line 2" };
assert.match(say("nearest", near), /0\.5000 a(, |、)b.*好.*rows\.csv, line 2/);
assert.match(say("nearest", { ...near, label: "a" }), /0\.5000 a.*好/);
