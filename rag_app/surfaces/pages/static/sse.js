// Server-sent events by `fetch`, which unlike EventSource can send a POST and headers: docs/streaming.md has the vocabulary.

/**
 * Split what has arrived into events. What is not complete yet is given back.
 * @param {string} text
 * @returns {{events: {event: string, data: string, id: string | null}[], rest: string}}
 */
export function parse(text) {
  const blocks = text.split(/\r?\n\r?\n/);
  const rest = blocks.pop() ?? "";
  const events = [];
  for (const block of blocks) {
    let event = "message";
    let id = null;
    const data = [];
    for (const line of block.split(/\r?\n/)) {
      if (line === "" || line.startsWith(":")) continue;
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") event = value;
      else if (name === "data") data.push(value);
      else if (name === "id") id = value;
    }
    if (data.length) events.push({ event, data: data.join("\n"), id });
  }
  return { events, rest };
}

/**
 * The events of a response, as they come.
 * @param {Response} response
 */
export async function* read(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parsed = parse(rest + value);
    rest = parsed.rest;
    for (const each of parsed.events) yield { event: each.event, data: JSON.parse(each.data), id: each.id };
  }
}
