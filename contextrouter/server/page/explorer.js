// The page: the form, the plan before it runs, progress as it comes, and the link that asks the same again.

import * as api from "/explorer/api.js";
import { foreign, h, seconds, section, table } from "/explorer/dom.js";
import { answered, compared, coverage, sections, writing } from "/explorer/result.js";

const at = (id) => document.getElementById(id);
const VECTOR = ["vector", "keywords"];
let known = { sources: [], routes: [] };
let asking = 0; // the number of the newest question; answers to older ones are not shown

const say = (text) => { at("status").textContent = text; };
const legsOf = (mode) => {
  const all = [...new Set(known.sources.flatMap((source) => source.legs))];
  return all.filter((leg) => (mode === "vector" ? VECTOR.includes(leg) : leg === "text"));
};

function body(mode = at("legs").value) {
  const boxes = [...document.querySelectorAll("#sources input:not(:disabled)")];
  const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
  return {
    question: at("question").value,
    ...(at("mode").value ? { mode: at("mode").value } : {}),
    ...(at("deadline").value ? { deadline: Number(at("deadline").value) } : {}),
    ...(at("since").value || at("until").value ? { period: { start: at("since").value || null, end: at("until").value || null } } : {}),
    ...(at("limit").value ? { limit: Number(at("limit").value) } : {}),
    ...(chosen.length < boxes.length ? { sources: chosen } : {}),
    ...(mode ? { legs: legsOf(mode) } : {}),
  };
}

const OPTIONS = ["legs", "mode", "deadline", "since", "until", "limit"];

function remember() {
  const asked = { q: at("question").value, ...Object.fromEntries(OPTIONS.map((name) => [name, at(name).value])) };
  const off = [...document.querySelectorAll("#sources input:not(:disabled)")].filter((box) => !box.checked).map((box) => box.value);
  const kept = new URLSearchParams(Object.entries({ ...asked, without: off.join(",") }).filter(([, value]) => value));
  at("link").href = `#${kept}`;
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  at("question").value = kept.get("q") ?? "";
  for (const name of OPTIONS) at(name).value = kept.get(name) ?? "";
  const off = (kept.get("without") ?? "").split(",");
  for (const box of document.querySelectorAll("#sources input")) if (off.includes(box.value)) box.checked = false;
  return Boolean(kept.get("q"));
}

/** Show a plan; returns what marks a call as ended. */
function showPlan(plan) {
  const waiting = plan.calls.map((call) => ({ call, cell: h("span", { class: "waiting" }, "waiting"), took: h("span") }));
  const rows = waiting.map(({ call, cell, took }) => [call.source, call.query.leg, foreign(call.query.text), String(call.query.limit), cell, took]);
  const out = Object.entries(plan.excluded).map(([name, why]) => [name, "", foreign(why), "", h("span", { class: "skipped" }, "not asked"), ""]);
  const heading = `Route ${plan.route}; ${plan.calls.length} calls. Understood: ${[...plan.intent.queries, ...plan.intent.concepts].join("; ")}`;
  at("plan").hidden = false;
  at("plan").lastElementChild.replaceChildren(table(heading, ["source", "leg", "query", ["limit"], "status", ["time"]], [...rows, ...out]));
  return (report) => {
    const found = waiting.find(({ call, cell }) => cell.textContent === "waiting" && call.source === report.source && call.query.leg === report.leg && call.query.text === report.query);
    if (!found) return;
    found.cell.className = report.status;
    found.cell.textContent = `${report.status}, ${report.count}`;
    found.took.textContent = seconds(report.elapsed);
  };
}

async function guarded(act) {
  const mine = ++asking;
  const current = () => mine === asking;
  document.body.toggleAttribute("aria-busy", true);
  try {
    await act(current);
  } catch (error) {
    if (!current()) return;
    say("");
    const needs = error.status === 401;
    if (needs) { at("keyed").hidden = false; at("key").focus(); }
    const shown = section("problem", needs ? "A key is needed" : "No answer", h("p", {}, foreign(error.message)));
    shown.className = "problem";
    at("result").replaceChildren(shown, ...(error.coverage?.length ? [coverage(error.coverage)] : []));
  } finally {
    if (current()) document.body.toggleAttribute("aria-busy", false);
  }
}

const ask = () => guarded(async (current) => {
  remember();
  say("Planning …");
  const asked = body();
  const ended = showPlan(await api.plan(asked));
  at("result").replaceChildren();
  let reports = 0;
  say("Asking the sources …");
  const context = await api.stream("/v1/route", { ...asked, detail: "trace" }, { report: (report) => { if (current()) { ended(report); say(`${++reports} calls have ended …`); } } });
  if (!current()) return;
  at("result").replaceChildren(...sections(context));
  say(`${context.envelopes.length} documents and ${context.facts.length} facts in ${seconds(context.usage.seconds)}.`);
});

const answer = () => guarded(async (current) => {
  remember();
  at("plan").hidden = true;
  const { shown, add } = writing();
  at("result").replaceChildren(shown);
  say("Asking the sources …");
  const write = ({ text }) => { if (current()) { add(text); say("Writing …"); } };
  const result = await api.stream("/v1/answer", { ...body(), detail: "trace" }, { text: write, refusal: write });
  if (!current()) return;
  at("result").replaceChildren(answered(result), ...sections(result.context));
  say(`${result.outcome}: ${result.citations.length} of ${result.context.envelopes.length} documents cited.`);
});

const planOnly = () => guarded(async () => {
  remember();
  showPlan(await api.plan(body()));
  at("result").replaceChildren();
  say("This is what would be asked. Nothing was.");
});

const compare = () => guarded(async (current) => {
  remember();
  say("Asking in three modes …");
  const results = await Promise.all([["hybrid", ""], ["vector", "vector"], ["text", "text"]].map(async ([name, mode]) => {
    if (mode && !legsOf(mode).length) return [name, "No source can be searched this way."];
    return [name, await api.route({ ...body(mode), detail: "full" }).catch((error) => (error.status === 401 ? Promise.reject(error) : error.message))];
  }));
  if (!current()) return;
  at("plan").hidden = true;
  at("result").replaceChildren(compared(results));
  say("Three modes, side by side.");
});

async function begin() {
  known = await api.sources();
  const { scope } = known;
  const sees = scope ? `sees compartments: ${scope.compartments.join(", ") || "none"}; up to ${scope.ceiling}` : "sees everything";
  at("caller").replaceChildren(foreign(`${known.caller} ${sees}`));
  at("mode").append(...known.routes.map((route) => h("option", { value: route }, route)));
  at("sources").replaceChildren(...known.sources.map((source) => h("li", { class: source.excluded ? "off" : null },
    h("label", {}, h("input", { type: "checkbox", value: source.name, checked: !source.excluded, disabled: Boolean(source.excluded) }),
      ` ${source.name}`, h("span", { class: "dim" }, ` ${source.kind}${source.excluded ? `, excluded: ${source.excluded}` : ""}`)))));
  at("result").replaceChildren();
  if (recall()) await ask();
}

at("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
at("planned").addEventListener("click", () => at("ask").reportValidity() && planOnly());
at("answered").addEventListener("click", () => at("ask").reportValidity() && answer());
at("compare").addEventListener("click", () => at("ask").reportValidity() && compare());
at("key").addEventListener("change", () => { api.useKey(at("key").value); guarded(begin); });
window.addEventListener("hashchange", () => recall() && ask());
guarded(begin);
