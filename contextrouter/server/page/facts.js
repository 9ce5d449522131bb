// The facts as a small graph, and as a table for those who do not see it.

import { foreign, h, number, table } from "/explorer/dom.js";

const MOST = 14; // names that a graph shows; the table has all
const WIDE = 720;
const HIGH = 360;

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** The names with most facts, and the facts between them. */
function chosen(facts) {
  const degrees = new Map();
  for (const fact of facts) for (const name of [fact.subject, fact.object]) degrees.set(name, (degrees.get(name) ?? 0) + 1);
  const names = [...degrees].sort((a, b) => b[1] - a[1]).slice(0, MOST).map(([name]) => name);
  const kept = new Set(names);
  return { names, between: facts.filter((fact) => kept.has(fact.subject) && kept.has(fact.object) && fact.subject !== fact.object) };
}

function graph(facts) {
  const { names, between } = chosen(facts);
  // Two columns: what has facts on the left, what facts are about on the right. A line is a fact.
  const left = names.filter((name) => between.some((fact) => fact.subject === name) && !between.some((fact) => fact.object === name));
  const right = names.filter((name) => !left.includes(name));
  const place = new Map();
  for (const [column, x] of [[left, 0.34], [right, 0.66]]) {
    column.forEach((name, at) => place.set(name, { x: x * WIDE, y: (HIGH * (at + 0.5)) / column.length, right: x > 0.5 }));
  }
  const turns = new Map();
  const lines = between.map((fact) => {
    const [from, to] = [place.get(fact.subject), place.get(fact.object)];
    const bend = from.x === to.x ? 60 : 0;
    const turn = turns.get(fact.subject) ?? 0;
    turns.set(fact.subject, turn + 1);
    const along = bend ? 0.5 : 0.22 + 0.24 * (turn % 3); // names of lines that begin in one place stand apart
    return h("g", { class: "edge" }, h("title", {}, `${fact.subject} — ${fact.predicate} — ${fact.object}`),
      h("path", { d: `M ${from.x} ${from.y} Q ${(from.x + to.x) / 2 + bend} ${(from.y + to.y) / 2} ${to.x} ${to.y}` }),
      between.length > 12 ? null : h("text", { x: from.x + (to.x - from.x) * along + bend / 2 + (bend ? 6 : 0), y: from.y + (to.y - from.y) * along - 3, "text-anchor": bend ? "start" : "middle" }, short(fact.predicate.replaceAll("_", " "), 16)));
  });
  const nodes = [...place].map(([name, at]) => h("g", { class: "node" }, h("title", {}, name), h("circle", { cx: at.x, cy: at.y, r: 5 }),
    h("text", { x: at.x + (at.right ? 10 : -10), y: at.y + 4, "text-anchor": at.right ? "start" : "end" }, short(name, 30))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Graph of the facts" },
    h("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "graph", role: "img", "aria-label": `${between.length} facts between ${names.length} names; the table below has all ${facts.length}.` }, lines, nodes));
}

/** The graph and the table of facts. */
export function factsShown(facts) {
  const rows = facts.map((fact) => [foreign(fact.subject), foreign(fact.predicate), foreign(fact.object), number(fact.confidence), fact.source]);
  return [graph(facts), table("Beside the documents; never cited", ["subject", "predicate", "object", ["sure"], "source"], rows)];
}
