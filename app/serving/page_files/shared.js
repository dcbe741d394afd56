"use strict";
// What all pages share. Each page has its words in SAY, by language.
const at = (id) => document.getElementById(id);
let language = navigator.language.startsWith("zh") ? "zh" : "en";

function say(name, ...values) {
  const words = SAY[language][name];
  return typeof words === "function" ? words(...values) : words;
}

function showWords() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-say]")) element.textContent = say(element.dataset.say);
  document.title = say("title");
  at("language").textContent = language === "zh" ? "English" : "中文";
}

async function ask(path, body, type) {
  const headers = at("key").value ? { Authorization: `Bearer ${at("key").value}` } : {};
  if (type) headers["Content-Type"] = type;
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body });
  if (answer.ok) return answer;
  throw Object.assign(new Error((await answer.json()).error), { status: answer.status });
}

const call = async (path, body) => (await ask(path, body && JSON.stringify(body), body && "application/json")).json();

function element(name, className, text) {
  return Object.assign(document.createElement(name), { className, textContent: text ?? "" });
}

