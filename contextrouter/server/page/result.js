// A result as sections: answerability, hits with their scores, what was lost and where, context, facts, coverage, timings.

import { fill, foreign, h, link, number, seconds, section, table } from "/explorer/dom.js";

export const nameOf = (document) => document.title || document.url || document.id || document.content.slice(0, 60) || "untitled";

/** The name of a piece: that of its document, and the last heading above it. */
const pieceOf = (document) => [nameOf(document), document.path.at(-1)].filter((part, at, parts) => part && parts.indexOf(part) === at).join(" > ");

/** Where a document was found: "source leg" -> its best word there. */
function legsOf(envelope) {
  const found = new Map();
  for (const seal of envelope.provenance) {
    const name = `${seal.source} ${seal.leg}`;
    if (!found.has(name) || found.get(name).rank > seal.rank) found.set(name, seal);
  }
  return found;
}

/** The parts of a document's score, each from 0 to 1: the legs that found it, and the signals of the stages. */
export function partsOf(envelope) {
  const parts = [...legsOf(envelope)].map(([name, seal]) => ({
    name, share: seal.normalized ?? 1 / seal.rank, said: `#${seal.rank}${seal.score === null ? "" : `, score ${number(seal.score)}`}`,
  }));
  const own = ["fused", "calibrated"];  // scores of the fusion, not from 0 to 1
  const signals = Object.entries(envelope.signals).filter(([name]) => !name.endsWith("_missing") && !own.includes(name));
  return [...parts, ...signals.map(([name, value]) => ({ name, share: Math.min(1, Math.max(0, value)), said: number(value) }))];
}

function bars(envelope, colours) {
  const parts = partsOf(envelope);
  const colour = (name) => {
    if (!colours.has(name)) colours.set(name, `c${colours.size % 8}`);
    return colours.get(name);
  };
  const stacked = parts.map((part) => h("i", { class: colour(part.name), width: (100 * part.share) / parts.length }));
  const legend = parts.map((part) => h("li", {}, h("i", { class: colour(part.name), "aria-hidden": "true" }), part.name, ": ", part.said));
  return h("div", {},
    h("div", { class: "dim" }, `combined ${number(envelope.normalized)} of 1 (score ${number(envelope.score)})`),
    h("div", { class: "bar", "aria-hidden": "true" }, h("i", { class: "c0", width: 100 * envelope.normalized })),
    h("div", { class: "bar", "aria-hidden": "true" }, stacked),
    h("ul", { class: "legend" }, legend));
}

/** In words, why one document stands above the next. */
export function whyAbove(upper, lower) {
  const below = new Map(partsOf(lower).map((part) => [part.name, part]));
  const words = [`Its score is ${number(upper.score)}, that of the next ${number(lower.score)}.`];
  for (const part of partsOf(upper)) {
    const other = below.get(part.name);
    if (!other) words.push(`${part.name} has this one (${part.said}) and not the next.`);
    else if (part.said !== other.said) words.push(`${part.name}: ${part.said}; the next ${other.said}.`);
    below.delete(part.name);
  }
  for (const part of below.values()) words.push(`${part.name} has the next (${part.said}) and not this one.`);
  return words;
}

function provenance(envelope) {
  const rows = envelope.provenance.map((seal) => [
    seal.source, seal.leg, foreign(seal.query), String(seal.rank), number(seal.score), number(seal.normalized), number(seal.weight),
    seal.place === null ? "" : String(seal.place), seal.calibrated === null ? "" : number(seal.calibrated)]);
  return h("div", {},
    h("p", { class: "dim" }, "Score: what the source gave. Share: of the leg's best, 0 to 1; times the weight it adds to the score within the source. ",
      "Place: in the order of its source. Given: the value of that place beside other sources, which decides between them."),
    table("Every list that has it", ["source", "leg", "query", ["rank"], ["score"], ["share"], ["weight"], ["place"], ["given"]], rows));
}

function hit(envelope, at, envelopes, colours) {
  const { document } = envelope;
  const labels = [document.kind, document.trust, document.compartment, document.sensitivity, document.path.join(" > ")];
  const why = h("details", { on: { toggle: (event) => event.target.open && event.target.childElementCount === 1 && event.target.append(
    h("ul", {}, (at + 1 < envelopes.length ? whyAbove(envelope, envelopes[at + 1]) : ["It is the last."]).map((line) => h("li", {}, line))),
    provenance(envelope)) } }, h("summary", {}, "Why here?"));
  return h("li", {}, h("div", { class: "hit" },
    h("div", {},
      h("h3", {}, h("span", { class: "number" }, `[${at + 1}] `), link(document.url, nameOf(document).slice(0, 300))),
      h("p", { class: "dim" }, foreign(labels.filter(Boolean).join(" · "))),
      h("p", { class: "excerpt" }, foreign(document.content.slice(0, 600))),
      why),
    bars(envelope, colours)));
}

function hits(context, colours) {
  const list = h("ol", { class: "hits" });
  fill(list, context.envelopes, (envelope, at) => hit(envelope, at, context.envelopes, colours));
  const about = "Best first; [n] is the citation number. Upper bar: the combined score. Lower bar: each leg's score within its own list, and the signals of the stages.";
  return section("hits", `Selected (${context.envelopes.length})`, h("p", { class: "dim" }, about), list);
}

function lost(context) {
  const reasons = new Map();
  for (const step of context.trace.steps) {
    for (const envelope of step.lost) {
      const why = `${step.name}: ${(envelope.dropped ?? "").replace(/^[^:]*: /, "")}`;
      reasons.set(why, [...(reasons.get(why) ?? []), envelope]);
    }
  }
  const groups = [...reasons].map(([why, envelopes]) => {
    const group = h("details", { on: { toggle: () => {
      if (!group.open || group.childElementCount > 1) return;
      const list = h("ol", {});
      group.append(list);
      fill(list, envelopes, (envelope) => h("li", {}, link(envelope.document.url, pieceOf(envelope.document).slice(0, 200)),
        h("span", { class: "dim" }, ` ${number(envelope.score)} · ${[...legsOf(envelope).keys()].join(", ")}`)));
    } } }, h("summary", {}, foreign(why), ` (${envelopes.length})`));
    return group;
  });
  const live = Object.fromEntries(context.trace.steps.map((step) => [step.name, step.live]));
  const merged = "dedupe" in live ? `${context.usage.hits} hits became ${live.dedupe} distinct documents. ` : "";
  const withheld = context.coverage.reduce((sum, report) => sum + report.withheld, 0);
  const kept = withheld ? `${withheld} hits were kept back on arrival by scope, kinds or filters. ` : "";
  return section("lost", "Lost, and where", h("p", { class: "dim" }, `${merged}${kept}${groups.length ? "Open a line to see which." : "Nothing was lost."}`), groups);
}

function answerable(context) {
  const judged = context.answerability;
  const facts = [`outcome: ${context.outcome}`, `route: ${context.intent.kind}`, context.cached ? "from the cache" : "", context.degraded ? "degraded: something failed" : ""];
  return section("answerability", "Can it be answered?",
    h("p", {}, h("span", { class: `level ${judged.level}` }, judged.level), ` (${number(judged.confidence)}) – ${judged.reason}`),
    context.clarification ? h("p", {}, h("strong", {}, foreign(context.clarification.question))) : null,
    h("p", { class: "dim" }, facts.filter(Boolean).join(" · ")));
}

function assembled(context) {
  const { tokens } = context.usage;
  const counted = tokens === null ? `${context.text.length} characters` : `${tokens} tokens, ${context.text.length} characters`;
  const each = context.citations.filter((citation) => citation.tokens !== null).map((citation) => [
    String(citation.number), foreign(citation.title.slice(0, 200)), citation.source, String(citation.tokens)]);
  const costs = each.length ? h("details", {}, h("summary", {}, "Tokens of each block"), table("What each block takes of the budget", [["n"], "document", "source", ["tokens"]], each)) : null;
  return section("context", "Assembled context", h("p", { class: "dim" }, `${counted}: what a language model is given.`), costs, h("pre", { tabindex: "0", "aria-label": "Assembled context" }, foreign(context.text)));
}

function facts(context) {
  if (!context.facts.length) return null;
  const rows = context.facts.map((fact) => [foreign(fact.subject), foreign(fact.predicate), foreign(fact.object), number(fact.confidence), fact.source]);
  return section("facts", `Facts (${context.facts.length})`, table("Beside the documents; never cited", ["subject", "predicate", "object", ["sure"], "source"], rows));
}

export function coverage(reports) {
  const rows = reports.map((report) => [
    report.source, report.leg, foreign(report.query), h("span", { class: report.status }, report.status), String(report.count), seconds(report.elapsed), foreign(report.error)]);
  return section("coverage", "Coverage", table("How each call ended", ["source", "leg", "query", "status", ["hits"], ["time"], "note"], rows));
}

function waterfall(context) {
  const { steps } = context.trace;
  const total = steps.reduce((sum, step) => sum + step.elapsed, 0) || 1;
  const rows = [];
  const row = (name, start, elapsed, colour) => rows.push(
    h("span", {}, name), h("span", { class: "track", "aria-hidden": "true" }, h("i", { class: colour, left: (100 * start) / total, width: Math.min(100, (100 * elapsed) / total) })),
    h("span", { class: "n" }, seconds(elapsed)));
  let start = 0;
  for (const step of steps) {
    row(step.name, start, step.elapsed, "c0");
    if (step.name === "fan_out") {
      const slowest = new Map();
      for (const report of context.coverage) {
        const name = `${report.source} ${report.leg}`;
        if (report.status !== "skipped") slowest.set(name, Math.max(slowest.get(name) ?? 0, report.elapsed));
      }
      for (const [name, elapsed] of slowest) row(`\u2003${name}`, start, elapsed, "c2");
    }
    start += step.elapsed;
  }
  return section("timings", `Timings (${seconds(context.usage.seconds)})`, h("div", { class: "fall" }, rows));
}

/** All sections of a result. */
export function sections(context) {
  for (const envelope of context.envelopes) for (const seal of envelope.provenance) seal.query = context.queries[seal.query];
  const colours = new Map();
  return [answerable(context), hits(context, colours), lost(context), assembled(context), facts(context), coverage(context.coverage), waterfall(context)].filter(Boolean);
}

/** Results of several modes side by side: [["vector", context], …]; a text in place of a context says why there is none. */
export function compared(results) {
  const whole = results.find(([, context]) => typeof context !== "string")?.[1];
  const place = new Map((whole?.envelopes ?? []).map((envelope, at) => [envelope.document.id + envelope.document.url, at + 1]));
  const columns = results.map(([name, context]) => h("div", {}, h("h3", {}, name), typeof context === "string"
    ? h("p", { class: "dim" }, context)
    : [h("p", { class: "dim" }, `${context.envelopes.length} documents in ${seconds(context.usage.seconds)}, ${context.answerability.level}`),
      h("ol", {}, context.envelopes.slice(0, 20).map((envelope) => {
        const there = place.get(envelope.document.id + envelope.document.url);
        return h("li", {}, link(envelope.document.url, pieceOf(envelope.document).slice(0, 120)), h("span", { class: "dim" }, context === whole ? "" : there ? ` (#${there} in ${results[0][0]})` : ` (not in ${results[0][0]})`));
      }))]));
  return section("comparison", "Modes side by side", h("div", { class: "columns" }, columns));
}
