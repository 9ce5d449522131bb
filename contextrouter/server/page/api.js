// The only place that asks the server, and the only server that is asked: this one.

export class Problem extends Error {}

let key = "";
export const useKey = (value) => { key = value; };
export const hasKey = () => Boolean(key);

async function send(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const options = body === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  if (!response.ok) {
    const told = await response.json().catch(() => ({ detail: response.statusText }));
    throw Object.assign(new Problem(told.detail), { status: response.status, coverage: told.coverage ?? [] });
  }
  return response;
}

export const sources = async () => (await send("/v1/sources")).json();
export const plan = async (body) => (await send("/v1/plan", body)).json();
export const route = async (body) => (await send("/v1/route", body)).json();

/** Ask as a stream; `on[event]` gets the data of each event before the result. Returns the result. */
export async function stream(path, body, on) {
  const response = await send(path, { ...body, stream: true });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Problem("The server broke off before the result.");
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 2)]));
      const data = JSON.parse(fields.data);
      on[fields.event]?.(data);
      if (fields.event === "error") throw Object.assign(new Problem(data.detail), { status: data.status, coverage: data.coverage ?? [] });
      if (fields.event === "result") { reader.cancel(); return data; }
    }
  }
}

/** Open a cited file of this server. A link sends no key, so that with a key the page fetches the file itself. */
export async function openFile(url, event) {
  if (!key || !url.startsWith(`${location.origin}/v1/files?`)) return;
  event.preventDefault();
  const shown = window.open("", "_blank");
  const response = await fetch(url, { headers: { Authorization: `Bearer ${key}`, Accept: "text/plain, */*" } });
  const told = response.ok ? await response.blob() : new Blob([(await response.json()).detail], { type: "text/plain" });
  const address = URL.createObjectURL(told) + new URL(url).hash;
  if (shown) shown.location.replace(address);
}
