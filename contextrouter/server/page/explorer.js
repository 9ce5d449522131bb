// The page: the form, an example at first sight, the answer, and the link that asks the same again.

import { answered, writing } from "/explorer/answer.js";
import * as api from "/explorer/api.js";
import { cards, compared } from "/explorer/cards.js";
import { copies } from "/explorer/copies.js";
import { course, coverage, named, planned } from "/explorer/course.js";
import { count, foreign, h, seconds, section } from "/explorer/dom.js";
import { wordsOf } from "/explorer/markdown.js";

const at = (id) => document.getElementById(id);
const OPTIONS = ["legs", "mode", "deadline", "since", "until", "limit"];
const STRUCTURED = ["facts", "facets", "entities", "path"]; // legs that are no lists of documents
let known = { sources: [], routes: [], examples: [] };
let asking = 0; // the number of the newest question; answers to older ones are not shown

const say = (text) => { at("status").textContent = text; };
const boxes = () => [...document.querySelectorAll("#sources input:not(:disabled)")];
const legs = () => [...new Set(known.sources.flatMap((source) => source.legs))].filter((leg) => !STRUCTURED.includes(leg));

function body(leg = at("legs").value) {
  const chosen = boxes().filter((box) => box.checked).map((box) => box.value);
  return {
    question: at("question").value,
    ...(at("mode").value ? { mode: at("mode").value } : {}),
    ...(at("deadline").value ? { deadline: Number(at("deadline").value) } : {}),
    ...(at("since").value || at("until").value ? { period: { start: at("since").value || null, end: at("until").value || null } } : {}),
    ...(at("limit").value ? { limit: Number(at("limit").value) } : {}),
    ...(chosen.length < boxes().length ? { sources: chosen } : {}),
    ...(leg ? { legs: [leg] } : {}),
  };
}

function remember() {
  const asked = { q: at("question").value, ...Object.fromEntries(OPTIONS.map((name) => [name, at(name).value])) };
  const off = boxes().filter((box) => !box.checked).map((box) => box.value);
  const kept = new URLSearchParams(Object.entries({ ...asked, without: off.join(",") }).filter(([, value]) => value));
  at("link").href = `#${kept}`;
  history.replaceState(null, "", `#${kept}`);
  at("examples").hidden = true;
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  at("question").value = kept.get("q") ?? "";
  for (const name of OPTIONS) at(name).value = kept.get(name) ?? "";
  const off = (kept.get("without") ?? "").split(",");
  for (const box of document.querySelectorAll("#sources input")) if (off.includes(box.value)) box.checked = false;
  at("options").open ||= OPTIONS.some((name) => kept.get(name)) || Boolean(kept.get("without"));
  return Boolean(kept.get("q"));
}

async function guarded(act) {
  const mine = ++asking;
  const current = () => mine === asking;
  at("result").setAttribute("aria-busy", "true");
  try {
    await act(current);
  } catch (error) {
    if (!current()) return;
    say("");
    const needs = error.status === 401;
    if (needs) { at("keyed").hidden = false; at("key").focus(); }
    const shown = section("problem", needs ? "A key is needed" : "No answer", h("p", {}, foreign(error.message)), error.coverage?.length ? coverage(error.coverage) : null);
    shown.className = "problem";
    at("result").replaceChildren(shown);
  } finally {
    if (current()) at("result").setAttribute("aria-busy", "false");
  }
}

const shownOf = (context) => [cards(named(context), wordsOf(context.question, context.intent.text)), course(context)];
const copiesOf = (path) => copies(path, body(), api.hasKey(), say);

const ask = () => guarded(async (current) => {
  remember();
  at("progress").hidden = true;
  const { shown, add } = writing();
  at("result").replaceChildren(shown);
  say("Asking the sources …");
  const write = ({ text }) => { if (current()) { add(text); say("Writing …"); } };
  const result = await api.stream("/v1/answer", { ...body(), detail: "trace" }, { text: write, refusal: write });
  if (!current()) return;
  at("result").replaceChildren(answered(result, copiesOf("/v1/answer")), ...shownOf(result.context));
  say(`${result.outcome}: ${result.citations.length} of ${count(result.context.envelopes.length, "document")} cited, in ${seconds(result.context.usage.seconds)}.`);
});

const search = () => guarded(async (current) => {
  remember();
  say("Planning …");
  const plan = planned(await api.plan(body()));
  if (!current()) return;
  at("progress").hidden = false;
  at("progress").lastElementChild.replaceChildren(plan.shown);
  at("result").replaceChildren();
  let reports = 0;
  say("Asking the sources …");
  const context = await api.stream("/v1/route", { ...body(), detail: "trace" }, { report: (report) => { if (current()) { plan.ended(report); say(`${count(++reports, "call")} ended …`); } } });
  if (!current()) return;
  at("result").replaceChildren(...shownOf(context), copiesOf("/v1/route"));
  say(`${count(context.envelopes.length, "document")} and ${count(context.facts.length, "fact")} in ${seconds(context.usage.seconds)}.`);
});

const planOnly = () => guarded(async (current) => {
  remember();
  const plan = planned(await api.plan(body()));
  if (!current()) return;
  at("progress").hidden = false;
  at("progress").lastElementChild.replaceChildren(plan.shown);
  at("result").replaceChildren();
  say("This is what would be asked. Nothing was.");
});

const compare = () => guarded(async (current) => {
  remember();
  const compare = ["vector", "text"].filter((leg) => legs().includes(leg));
  say("Asking all legs, and each alone …");
  const results = await Promise.all([["all legs", ""], ...compare.map((leg) => [leg, leg])].map(async ([name, leg]) => [name,
    await api.route({ ...body(leg), detail: "full" }).catch((error) => (error.status === 401 ? Promise.reject(error) : error.message))]));
  if (!current()) return;
  at("progress").hidden = true;
  at("result").replaceChildren(compared(results));
  say(`${count(results.length, "answer")}, side by side.`);
});

function offer() {
  const asked = known.examples.length ? known.examples : [];
  at("examples").hidden = !asked.length;
  at("examples").lastElementChild.replaceChildren(...asked.map((question) => h("button", { type: "button", class: "example", on: { click: () => { at("question").value = question; ask(); } } }, foreign(question))));
}

async function begin() {
  known = await api.sources();
  const { scope } = known;
  const sees = scope ? `sees compartments: ${scope.compartments.join(", ") || "none"}; up to ${scope.ceiling}` : "sees everything";
  at("caller").replaceChildren(foreign(`${known.caller} ${sees}`));
  at("mode").replaceChildren(at("mode").firstElementChild, ...known.routes.map((route) => h("option", { value: route }, route)));
  at("legs").replaceChildren(at("legs").firstElementChild, ...legs().map((leg) => h("option", { value: leg }, leg)));
  at("sources").replaceChildren(...known.sources.map((source) => h("li", { class: source.excluded ? "off" : null },
    h("label", {}, h("input", { type: "checkbox", value: source.name, checked: !source.excluded, disabled: Boolean(source.excluded) }),
      ` ${source.name}`, h("span", { class: "dim" }, ` ${source.kind}${source.excluded ? `, excluded: ${source.excluded}` : ""}`)))));
  at("result").replaceChildren();
  if (recall()) await ask();
  else offer();
}

at("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
for (const [id, act] of [["searched", search], ["compare", compare], ["planned", planOnly]]) {
  at(id).addEventListener("click", () => at("ask").reportValidity() && act());
}
at("key").addEventListener("change", () => { api.useKey(at("key").value); guarded(begin); });
window.addEventListener("hashchange", () => recall() && ask());
guarded(begin);
