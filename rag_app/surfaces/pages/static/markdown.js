// A subset of Markdown as DOM nodes: paragraphs, headings, lists, quotes, code, tables, emphasis, http(s) links. There is no
// HTML in it and no image: text of a model or a source cannot become anything else.

const BLOCK = {
  fence: /^ {0,3}(```|~~~)\s*([\w+-]*)\s*$/,
  heading: /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/,
  rule: /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/,
  quote: /^ {0,3}>\s?/,
  item: /^(\s*)(?:[-*+•]|(\d{1,6})[.)])\s+(.*)$/,
  divider: /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/,
};
const DEEPEST = 6;

/** What citations look like in a text: [Source 1], [Source 1, Source 2], [1]. */
const CITATION = /\[\s*(?:Sources?\s*)?\d{1,3}(?:\s*(?:,|;|and|&)\s*(?:Sources?\s*)?\d{1,3})*\s*\]/i;
const INLINE = new RegExp(
  [
    "(?<escaped>\\\\[\\\\`*_{}\\[\\]()#+\\-.!|~>])",
    "(?<code>(?<!`)(?<ticks>`{1,3})(?!`)(?<said>[^\\n]*?[^`\\n])\\k<ticks>(?!`))",
    `(?<cited>${CITATION.source})`,
    "(?<image>!\\[(?<alt>[^\\]\\n]{0,400})\\]\\([^)\\n]{0,2000}\\))",
    "(?<link>\\[(?<label>[^\\]\\n]{1,400})\\]\\((?<to>[^\\s()]{1,2000}(?:\\([^\\s()]*\\)[^\\s()]*)?)\\s*(?:\"[^\"\\n]*\")?\\))",
    "(?<bold>\\*\\*(?=\\S)(?<strong>[^\\n]+?)(?<=\\S)\\*\\*|__(?=\\S)(?<strong2>[^\\n]+?)(?<=\\S)__(?!\\w))",
    "(?<struck>~~(?=\\S)(?<gone>[^\\n]+?)(?<=\\S)~~)",
    "(?<italic>\\*(?=[^\\s*])(?<em>[^*\\n]+?)(?<=\\S)\\*|(?<!\\w)_(?=[^\\s_])(?<em2>[^_\\n]+?)(?<=\\S)_(?!\\w))",
    "(?<bare>https?:\\/\\/[^\\s<>\"')\\]]+[^\\s<>\"')\\].,;:!?])",
  ].join("|"),
  "gi",
);

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/**
 * An address that a link may lead to; null for any other.
 * @param {string} address
 */
export function safeAddress(address) {
  try {
    const url = new URL(address);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * @param {string} text
 * @param {Cite} cite what stands for a citation of these numbers, as it is `written`; it is also told of those in code
 * @returns {DocumentFragment}
 */
export function render(text, cite = (numbers) => `[${numbers.join(", ")}]`) {
  const into = document.createDocumentFragment();
  blocks(text.replace(/\r\n?/g, "\n").split("\n"), into, cite, 0);
  return into;
}

/** @typedef {(numbers: number[], written: string) => (Node | string)} Cite */

/**
 * @param {string[]} lines
 * @param {Node} into
 * @param {Cite} cite
 * @param {number} depth
 */
function blocks(lines, into, cite, depth) {
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (line.trim() === "") {
      at += 1;
      continue;
    }
    const fence = BLOCK.fence.exec(line);
    if (fence) at = code(lines, at, fence[1], into, cite);
    else if (BLOCK.heading.test(line)) {
      const [, marks, said] = /** @type {RegExpExecArray} */ (BLOCK.heading.exec(line));
      into.appendChild(element(`h${Math.min(6, marks.length + 2)}`, {}, inline(said, cite)));
      at += 1;
    } else if (BLOCK.rule.test(line)) {
      into.appendChild(element("hr"));
      at += 1;
    } else if (BLOCK.quote.test(line) && depth < DEEPEST) {
      const quoted = [];
      while (at < lines.length && BLOCK.quote.test(lines[at])) quoted.push(lines[at++].replace(BLOCK.quote, ""));
      const quote = element("blockquote");
      blocks(quoted, quote, cite, depth + 1);
      into.appendChild(quote);
    } else if (BLOCK.item.test(line) && depth < DEEPEST) at = list(lines, at, into, cite, depth);
    else if (line.includes("|") && BLOCK.divider.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-"))
      at = table(lines, at, into, cite);
    else at = paragraph(lines, at, into, cite);
  }
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {string} mark
 * @param {Node} into
 * @param {Cite} cite
 */
function code(lines, at, mark, into, cite) {
  const said = [];
  at += 1;
  while (at < lines.length && !lines[at].trim().startsWith(mark)) said.push(lines[at++]);
  pass(said.join("\n"), cite);
  into.appendChild(element("pre", { tabindex: "0" }, element("code", {}, said.join("\n"))));
  return at + 1;
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {Node} into
 * @param {Cite} cite
 * @param {number} depth
 */
function list(lines, at, into, cite, depth) {
  const first = /** @type {RegExpExecArray} */ (BLOCK.item.exec(lines[at]));
  const indent = first[1].length;
  const made = element(first[2] ? "ol" : "ul");
  if (first[2] && first[2] !== "1") made.setAttribute("start", first[2]);
  while (at < lines.length) {
    const item = BLOCK.item.exec(lines[at]);
    if (!item || item[1].length > indent + 1 || item[1].length < indent || Boolean(item[2]) !== Boolean(first[2])) break;
    const inside = [item[3]];
    at += 1;
    while (at < lines.length) {
      const next = BLOCK.item.exec(lines[at]);
      const deeper = /^\s+/.exec(lines[at])?.[0].length ?? 0;
      if (next ? next[1].length <= indent + 1 : lines[at].trim() === "" || deeper <= indent) break;
      inside.push(lines[at++].slice(Math.min(deeper, indent + 2)));
    }
    const entry = element("li");
    const [head, ...rest] = inside;
    entry.append(inline(head, cite));
    blocks(rest, entry, cite, depth + 1);
    made.append(entry);
    let blank = at;
    while (blank < lines.length && lines[blank].trim() === "") blank += 1;
    const after = BLOCK.item.exec(lines[blank] ?? "");
    if (blank > at && after && after[1].length === indent && Boolean(after[2]) === Boolean(first[2])) at = blank;
  }
  into.appendChild(made);
  return at;
}

/** @param {string} line */
function cells(line) {
  return line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((each) => each.trim().replace(/\\\|/g, "|"));
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {Node} into
 * @param {Cite} cite
 */
function table(lines, at, into, cite) {
  const head = element("tr");
  for (const each of cells(lines[at])) head.append(element("th", { scope: "col" }, inline(each, cite)));
  const body = element("tbody");
  at += 2;
  while (at < lines.length && lines[at].includes("|") && lines[at].trim() !== "") {
    const row = element("tr");
    for (const each of cells(lines[at++]).slice(0, head.children.length)) row.append(element("td", {}, inline(each, cite)));
    body.append(row);
  }
  const made = element("table", {}, element("thead", {}, head), body);
  into.appendChild(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, made));
  return at;
}

/**
 * @param {string[]} lines
 * @param {number} at
 * @param {Node} into
 * @param {Cite} cite
 */
function paragraph(lines, at, into, cite) {
  const said = [lines[at++]];
  const begins = [BLOCK.fence, BLOCK.heading, BLOCK.quote, BLOCK.item, BLOCK.rule];
  while (at < lines.length && lines[at].trim() !== "" && !begins.some((each) => each.test(lines[at]))) said.push(lines[at++]);
  const made = element("p");
  said.forEach((line, index) => {
    if (index) made.append(/ {2}$|\\$/.test(said[index - 1]) ? element("br") : "\n");
    made.append(inline(line.trim().replace(/\\$/, ""), cite));
  });
  into.appendChild(made);
  return at;
}

/**
 * @param {string} text
 * @param {Cite} cite
 * @param {number} depth
 * @returns {DocumentFragment}
 */
function inline(text, cite, depth = 0) {
  const into = document.createDocumentFragment();
  let end = 0;
  if (depth < DEEPEST) {
    for (const match of text.matchAll(INLINE)) {
      const found = /** @type {Record<string, string | undefined>} */ (match.groups);
      if (match.index > end) into.append(text.slice(end, match.index));
      end = match.index + match[0].length;
      into.append(span(match[0], found, cite, depth));
    }
  }
  if (end < text.length) into.append(text.slice(end));
  return into;
}

/**
 * @param {string} whole
 * @param {Record<string, string | undefined>} found
 * @param {Cite} cite
 * @param {number} depth
 */
function span(whole, found, cite, depth) {
  if (found.escaped) return whole.slice(1);
  if (found.code) {
    pass(whole, cite);
    return element("code", {}, /** @type {string} */ (found.said).trim());
  }
  if (found.cited) return cite(numbersIn(whole), whole);
  if (found.image) return found.alt ?? "";
  if (found.link) return link(found.to ?? "", inline(found.label ?? "", cite, depth + 1));
  if (found.bold) return element("strong", {}, inline(found.strong ?? found.strong2 ?? "", cite, depth + 1));
  if (found.struck) return element("s", {}, inline(found.gone ?? "", cite, depth + 1));
  if (found.italic) return element("em", {}, inline(found.em ?? found.em2 ?? "", cite, depth + 1));
  return link(whole, whole);
}

/** @param {string} citation */
const numbersIn = (citation) => (citation.match(/\d+/g) ?? []).map(Number);

/**
 * Citations in code stay as they are, and count.
 * @param {string} said
 * @param {Cite} cite
 */
function pass(said, cite) {
  for (const [written] of said.matchAll(new RegExp(CITATION, "gi"))) cite(numbersIn(written), written);
}

/**
 * @param {string} address
 * @param {Node | string} said
 */
function link(address, said) {
  const safe = safeAddress(address);
  return safe ? element("a", { href: safe, rel: "noopener noreferrer nofollow", target: "_blank" }, said) : element("span", {}, said);
}
