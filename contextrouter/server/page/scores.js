// Scores of a document: the parts that made it, as bars and in words.

import { foreign, h, number, table } from "/explorer/dom.js";

/** Where a document was found: "source leg" -> its best word there. */
export function legsOf(envelope) {
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

/** A bar for the score, and one for each part of it. */
export function bars(envelope, colours) {
  const colour = (name) => {
    if (!colours.has(name)) colours.set(name, `c${(colours.size % 7) + 1}`);
    return colours.get(name);
  };
  const bar = (name, share, said, tone) => h("li", {},
    h("span", { class: "name", title: name }, name), h("span", { class: "bar", "aria-hidden": "true" }, h("i", { class: tone, share })), h("span", { class: "n" }, said));
  return h("ul", { class: "bars", "aria-label": "Scores" },
    bar("score", envelope.normalized, number(envelope.normalized), "c0"),
    partsOf(envelope).slice(0, 4).map((part) => bar(part.name, part.share, part.said, colour(part.name))));
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

/** Every list that has a document. */
export function provenance(envelope) {
  const rows = envelope.provenance.map((seal) => [
    seal.source, seal.leg, foreign(seal.query), String(seal.rank), number(seal.score), number(seal.normalized), number(seal.weight),
    seal.place === null ? "" : String(seal.place), seal.calibrated === null ? "" : number(seal.calibrated)]);
  return [
    h("p", { class: "dim" }, "Score: what the source gave. Share: of the leg's best, 0 to 1; times the weight it adds to the score within the source. ",
      "Place: in the order of its source. Given: the value of that place beside other sources, which decides between them."),
    table("Every list that has it", ["source", "leg", "query", ["rank"], ["score"], ["share"], ["weight"], ["place"], ["given"]], rows)];
}
