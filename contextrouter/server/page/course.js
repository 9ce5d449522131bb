// How the answer came about: coverage in a line, and behind it the plan, the calls in time, the way from what was found to
// what was selected, the facts, and the text that a language model is given.

import { nameOf } from "/explorer/answer.js";
import { count, fill, folded, foreign, h, link, number, seconds, section, table } from "/explorer/dom.js";
import { factsShown } from "/explorer/facts.js";
import { legsOf } from "/explorer/scores.js";

const FAILED = ["timeout", "error", "open", "partial"];

/** How each call ended. */
export function coverage(reports) {
  const rows = reports.map((report) => [
    report.source, report.leg, foreign(report.query), h("span", { class: report.status }, report.status), String(report.count), seconds(report.elapsed), foreign([report.error, report.note].filter(Boolean).join("; "))]);
  return table("How each call ended", ["source", "leg", "query", "status", ["hits"], ["time"], "note"], rows);
}

/** How the sources did, in a sentence. */
export function coverageLine(reports) {
  const asked = reports.filter((report) => report.status !== "skipped");
  const failed = [...new Set(asked.filter((report) => FAILED.includes(report.status)).map((report) => report.source))];
  const sources = new Set(asked.map((report) => report.source)).size;
  if (failed.length) return `Of ${count(sources, "source")}, ${failed.join(", ")} failed, or gave a part only.`;
  return `All of ${count(asked.length, "call")} to ${count(sources, "source")} answered.`;
}

/** A plan as a table. Returns it with what marks a call as ended. */
export function planned(plan) {
  const waiting = plan.calls.map((call) => ({ call, cell: h("span", { class: "waiting" }, "waiting"), took: h("span") }));
  const rows = waiting.map(({ call, cell, took }) => [call.source, call.query.leg, foreign(call.query.text), String(call.query.limit), cell, took]);
  const out = Object.entries(plan.excluded).map(([name, why]) => [name, "", foreign(why), "", h("span", { class: "skipped" }, "not asked"), ""]);
  const heading = `Route ${plan.route}; ${count(plan.calls.length, "call")}. Understood: ${[...plan.intent.queries, ...plan.intent.concepts].join("; ")}`;
  const shown = table(heading, ["source", "leg", "query", ["limit"], "status", ["time"]], [...rows, ...out]);
  const ended = (report) => {
    const found = waiting.find(({ call, cell }) => cell.textContent === "waiting" && call.source === report.source && call.query.leg === report.leg && call.query.text === report.query);
    if (!found) return;
    found.cell.className = report.status;
    found.cell.textContent = `${report.status}, ${report.count}`;
    found.took.textContent = seconds(report.elapsed);
  };
  return { shown, ended };
}

/** Steps and calls in time, each bar as long as it took. */
function waterfall(context) {
  const { steps } = context.trace;
  const longest = Math.max(0, ...context.coverage.map((report) => report.elapsed));
  const fan = steps.find((step) => step.name === "fan_out");
  const lengths = steps.map((step) => (step === fan ? Math.max(step.elapsed, longest) : step.elapsed));
  const total = lengths.reduce((sum, length) => sum + length, 0) || 1;
  const rows = [];
  const row = (name, start, elapsed, colour, about = "") => rows.push(
    h("span", { class: about }, foreign(name)), h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: colour, left: start / total, share: elapsed / total })),
    h("span", { class: "n" }, seconds(elapsed)));
  let start = 0;
  steps.forEach((step, at) => {
    row(step.name, start, step.elapsed, "c0");
    if (step === fan) {
      for (const report of context.coverage.filter((each) => each.status !== "skipped").sort((a, b) => b.elapsed - a.elapsed).slice(0, 60)) {
        row(`${report.source} ${report.leg}: ${report.query}`, start, report.elapsed, FAILED.includes(report.status) ? "bad" : "c2", "call");
      }
    }
    start += lengths[at];
  });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", { class: "tick", left: share }, seconds(share * total)));
  return [h("p", { class: "dim" }, "A bar is as long as its step or its call took. The calls run at the same time."), h("div", { class: "fall" }, h("span"), h("span", { class: "axis", "aria-hidden": "true" }, ticks), h("span"), rows)];
}

/** The documents lost in a step, by reason. */
function lostIn(step) {
  const reasons = new Map();
  for (const envelope of step.lost) {
    const why = (envelope.dropped ?? "").replace(/^[^:]*: /, "");
    reasons.set(why, [...(reasons.get(why) ?? []), envelope]);
  }
  return [...reasons].map(([why, envelopes]) => folded(null, [foreign(why), ` (${envelopes.length})`], () => {
    const list = h("ol", {});
    fill(list, envelopes, (envelope) => h("li", {}, link(envelope.document.url, [nameOf(envelope.document), envelope.document.path.at(-1)].filter((part, at, all) => part && all.indexOf(part) === at).join(" › ").slice(0, 200)),
      h("span", { class: "dim" }, ` ${number(envelope.score)} · ${[...legsOf(envelope).keys()].join(", ")}`)));
    return list;
  }));
}

/** From what was found to what was selected: each narrowing with its reasons. */
function funnel(context) {
  const most = Math.max(1, context.usage.hits);
  const withheld = context.coverage.reduce((sum, report) => sum + report.withheld, 0);
  const stage = (name, live, about, reasons = []) => h("li", {}, h("div", { class: "stage" },
    h("span", { class: "name" }, name), h("span", { class: "bar", "aria-hidden": "true" }, h("i", { class: "c0", share: live / most })), h("span", { class: "n" }, String(live))),
  about ? h("p", { class: "dim" }, about) : null, reasons);
  const stages = [stage("found", context.usage.hits, withheld ? `${count(withheld, "hit")} kept back on arrival by scope, kinds or filters.` : "")];
  let before = context.usage.hits;
  for (const step of context.trace.steps) {
    if (step.name === "dedupe") stages.push(stage("distinct", step.live, before > step.live ? `${count(before - step.live, "hit")} name a document that another one names.` : "", lostIn(step)));
    else if (step.lost.length) stages.push(stage(step.name, step.live, step.note, lostIn(step)));
    else continue;
    before = step.live;
  }
  stages.push(stage("selected", context.envelopes.length, ""));
  return h("ol", { class: "funnel" }, stages);
}

function text(context) {
  const { tokens } = context.usage;
  const counted = tokens === null ? count(context.text.length, "character") : `${count(tokens, "token")}, ${count(context.text.length, "character")}`;
  const each = context.citations.filter((citation) => citation.tokens !== null).map((citation) => [
    String(citation.number), foreign(citation.title.slice(0, 200)), citation.source, String(citation.tokens)]);
  return [h("p", { class: "dim" }, `${counted}: what a language model is given.`),
    each.length ? folded("blocks", "Tokens of each block", () => table("What each block takes of the budget", [["n"], "document", "source", ["tokens"]], each)) : null,
    h("pre", { tabindex: "0", "aria-label": "Assembled context" }, foreign(context.text))];
}

/** How a context came about. */
export function course(context) {
  const judged = context.answerability;
  const failed = context.coverage.some((report) => FAILED.includes(report.status));
  const facts = [`outcome: ${context.outcome}`, `route: ${context.intent.kind}`, context.cached ? "from the cache" : "", context.degraded ? "degraded: something failed" : ""];
  const lost = context.trace.steps.reduce((sum, step) => sum + step.lost.length, 0);
  return section("course", "How it came about",
    h("p", { id: "coverage-line", class: failed ? "error" : "dim" }, foreign(coverageLine(context.coverage))),
    h("p", { id: "answerability" }, "Can it be answered? ", h("span", { class: `level ${judged.level}` }, judged.level), ` (${number(judged.confidence)}) – ${judged.reason} `, h("span", { class: "dim" }, facts.filter(Boolean).join(" · "))),
    folded("coverage", `Calls (${context.coverage.length})`, () => coverage(context.coverage), failed),
    folded("plan", "Plan", () => {
      const plan = planned(context.trace.plan);
      context.coverage.forEach(plan.ended);
      return plan.shown;
    }),
    folded("timings", `Time of each step and call (${seconds(context.usage.seconds)})`, () => waterfall(context)),
    folded("lost", `From found to selected: ${count(context.usage.hits, "hit")} → ${count(context.envelopes.length, "document")}, ${lost} lost`, () => funnel(context)),
    context.facts.length ? folded("facts", `Facts (${context.facts.length})`, () => factsShown(context.facts)) : null,
    folded("context", "Text for a language model", () => text(context)));
}

/** Name the queries of provenance, which the server numbers. */
export function named(context) {
  const lost = (context.trace?.steps ?? []).flatMap((step) => step.lost);
  for (const envelope of [...context.envelopes, ...lost]) for (const seal of envelope.provenance) if (typeof seal.query === "number") seal.query = context.queries[seal.query];
  return context;
}
