// The same question for a terminal or a program. A key is never in it: it is read from the environment.

import { h } from "/explorer/dom.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** A request as a command of curl. */
export function curl(path, body, keyed) {
  const headers = ["Content-Type: application/json"].map((header) => ` -H '${header}'`).join("");
  return `curl ${location.origin}${path}${headers}${keyed ? ' -H "Authorization: Bearer $CONTEXTROUTER_KEY"' : ""} -d ${quoted(JSON.stringify(body))}`;
}

/** A request as a program of Python, without packages. */
export function python(path, body, keyed) {
  const key = keyed ? ', "Authorization": f"Bearer {os.environ[\'CONTEXTROUTER_KEY\']}"' : "";
  return [`import json${keyed ? ", os" : ""}, urllib.request`, "",
    `body = ${literal(body)}`,
    `headers = {"Content-Type": "application/json"${key}}`,
    `request = urllib.request.Request("${location.origin}${path}", json.dumps(body).encode(), headers)`,
    "with urllib.request.urlopen(request) as response:",
    "    answer = json.load(response)",
    'print(answer["text"])', ""].join("\n");
}

/** Buttons that copy a request. `say` tells that it is done. */
export function copies(path, body, keyed, say) {
  const button = (name, make) => h("button", { type: "button", class: "small", on: { click: async () => {
    const text = make(path, body, keyed);
    try {
      await navigator.clipboard.writeText(text);
      say(`Copied as ${name}.`);
    } catch {
      shown.textContent = text; // there is no clipboard: the text can be taken from here
      shown.hidden = false;
      getSelection().selectAllChildren(shown);
      say(`Not copied: the browser forbids it. The ${name} is below.`);
    }
  } } }, `Copy as ${name}`);
  const shown = h("pre", { hidden: true, tabindex: "0" });
  return h("div", { class: "copies" }, button("curl", curl), button("Python", python), shown);
}
