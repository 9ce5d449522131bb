// Elements are made here and nowhere else: texts become text nodes, attributes are named, nothing is parsed as HTML.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const DRAWN = new Set(["svg", "g", "line", "circle", "text", "title", "path"]);

/** The text with what would turn or hide other text made visible. */
export const visible = (text) => String(text).replace(HIDDEN, "\ufffd");

/** An element: h("td", { class: "n" }, "text", child, …). */
export function h(tag, attributes = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (name === "share") made.style.width = `${100 * value}%`;
    else if (name === "left") made.style.left = `${100 * value}%`;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== "").map(
    (child) => (child instanceof Node ? child : document.createTextNode(visible(child)))));
  return made;
}

/** A text from outside, set apart from the direction of what stands around it. */
export const foreign = (text) => h("bdi", {}, text);

/** A link to a page, or the plain text where it is none. */
export function link(url, text) {
  if (!/^https?:\/\//i.test(url)) return foreign(text);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, foreign(text));
}

/** A table with a caption; a column is a title, or [title] for numbers. */
export function table(caption, columns, rows) {
  const numeric = columns.map(Array.isArray);
  const head = columns.map((title) => h("th", { scope: "col", class: Array.isArray(title) ? "n" : null }, [title].flat()[0]));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: numeric[at] ? "n" : null }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** A section with a heading. */
export function section(id, title, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

/** Something that is made when it is opened for the first time. */
export function folded(id, title, make, open = false) {
  const body = h("div");
  const show = () => { if (!body.childElementCount) body.append(...[make()].flat().filter(Boolean)); };
  const made = h("details", { id, open, on: { toggle: () => made.open && show() } }, h("summary", {}, title), body);
  if (open) show();
  return made;
}

/** Many elements, some at a time, so that the page stays quick. */
export function fill(parent, items, make, at = 0) {
  parent.append(...items.slice(at, at + 20).map((item, place) => make(item, at + place)));
  if (at + 20 < items.length) requestAnimationFrame(() => fill(parent, items, make, at + 20));
}

export const seconds = (value) => (value < 1 ? `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms` : `${value.toFixed(1)} s`);
export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toPrecision(3).replace(/\.?0+$/, ""));
export const count = (value, noun) => `${value} ${noun}${value === 1 ? "" : "s"}`;
