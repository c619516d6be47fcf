// A value as text, as a tree of JSON, and as hex. Each shows its beginning at once and the rest piece by piece.

import { el, setText } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { bytes, plural } from "../text/format.js";
import { endOfValue, entriesOf, skipSpace } from "../text/json.js";
import { cut, hexDump, runsOf, visibleRuns } from "../text/value.js";

const PIECE_BYTES = 65_536;
/** Of a piece, unless it is this small: bytes that are no text make an element each. */
const RUNS_MAX = 4_000;
const LEAST_BYTES = 2_048;
const LINE_ENDS = "\n\t";
const ENTRIES = 200;
const OPEN_CHARACTERS = 4_000;
const COUNTED_CHARACTERS = 65_536;
const STRING_CHARACTERS = 5_000;
const NAME_CHARACTERS = 200;
const GLIMPSE_CHARACTERS = 80;

export function textView(data) {
  return pieceByPiece(data, (from, until) => runsOf(data.subarray(from, until), LINE_ENDS), "text");
}

export function hexView(data) {
  return pieceByPiece(data, (from, until) => [{ text: `${hexDump(data, from, until)}\n` }], "hex");
}

function pieceByPiece(data, make, kind) {
  const place = el("pre", { class: kind, tabindex: 0, role: "group", "aria-label": kind === "hex" ? "Value as hex" : "Value as text" });
  const more = el("button", { type: "button" });
  let at = 0;
  const add = () => {
    let runs = [];
    let until = at;
    for (let size = PIECE_BYTES; size === PIECE_BYTES || (runs.length > RUNS_MAX && size >= LEAST_BYTES); size /= 2) {
      until = kind === "hex" ? Math.min(at + size, data.length) : wholeCharacters(data, at + size);
      runs = make(at, until);
    }
    place.append(...shownRuns(runs));
    at = until;
    setText(more, `Show more (${bytes(at)} of ${bytes(data.length)})`);
    if (at >= data.length) more.remove();
  };
  more.addEventListener("click", add);
  const view = el("div", { class: "view" }, place, more);
  add();
  return view;
}

/** The end of a piece, moved to where a character ends. */
function wholeCharacters(data, until) {
  if (until >= data.length) return data.length;
  let end = until;
  while (end > until - 3 && (data[end] & 0xc0) === 0x80) end -= 1;
  return end;
}

/** A tree of what is in the text, which must be JSON. */
export function treeView(text) {
  const start = skipSpace(text, 0);
  const end = endOfValue(text, start);
  const depth = end - start <= OPEN_CHARACTERS ? 2 : 1;
  return el("div", { class: "view tree", role: "group", "aria-label": "Value as JSON" }, branch(text, { name: null, start, end }, null, depth));
}

function branch(text, entry, index, depth) {
  const isObject = text[entry.start] === "{";
  if (!isObject && text[entry.start] !== "[") return el("div", { class: "leaf" }, label(entry, index), scalar(text, entry));
  if (text[skipSpace(text, entry.start + 1)] === (isObject ? "}" : "]")) {
    return el("div", { class: "leaf" }, label(entry, index), el("span", { class: "quiet", text: isObject ? "{}" : "[]" }));
  }
  const inside = el("div", { class: "inside" });
  const node = el("details", {}, el("summary", {}, label(entry, index), glimpse(text, entry, isObject)), inside);
  const fill = () => inside.childElementCount || addEntries(text, entry, inside, depth - 1);
  node.addEventListener("toggle", () => node.open && fill());
  if (depth > 0) {
    fill();
    node.open = true;
  }
  return node;
}

/** The next ones of an object or array, and a button for those behind them. */
function addEntries(text, entry, inside, depth, from = entry.start + 1, first = 0) {
  const { entries, next } = entriesOf(text, entry.start, ENTRIES, from);
  inside.append(...entries.map((each, number) => branch(text, each, first + number, depth)));
  if (next === null) return;
  const more = el("button", { type: "button", text: `Show more (${plural(first + entries.length, "entry", "entries")} shown)` });
  more.addEventListener("click", () => {
    const last = inside.lastElementChild.previousElementSibling;
    more.remove();
    addEntries(text, entry, inside, 0, next, first + entries.length);
    last.nextElementSibling?.querySelector("summary")?.focus();
  });
  inside.append(more);
}

function label({ name }, index) {
  if (name === null) return index === null ? null : el("span", { class: "index", text: `${index}: ` });
  return [el("span", { class: "name" }, shownRuns(visibleRuns(cut(JSON.parse(name), NAME_CHARACTERS)))), ": "];
}

/** How many there are, where that costs little, and the beginning of them. */
function glimpse(text, { start, end }, isObject) {
  const size = end - start;
  const entries = size <= COUNTED_CHARACTERS ? plural(entriesOf(text, start).entries.length, "entry", "entries") : bytes(size);
  const begin = cut(text.slice(start, Math.min(end, start + GLIMPSE_CHARACTERS + 1)), GLIMPSE_CHARACTERS);
  return [
    el("span", { class: "quiet", text: `${isObject ? "{" : "["}${entries}${isObject ? "}" : "]"} ` }),
    el("span", { class: "glimpse" }, shownRuns(visibleRuns(begin))),
  ];
}

/** Numbers as they stand; strings as what they stand for. */
function scalar(text, { start, end }) {
  const source = text.slice(start, end);
  if (source[0] !== '"') return el("span", { class: /^[-\d]/.test(source) ? "number" : "word", text: cut(source, STRING_CHARACTERS) });
  const content = JSON.parse(source);
  const shown = el("span", { class: "string" }, '"', shownRuns(visibleRuns(cut(content, STRING_CHARACTERS))), '"');
  if (content.length <= STRING_CHARACTERS) return shown;
  return [shown, el("span", { class: "quiet", text: ` ${plural(content.length, "character")}: all of them are in Text` })];
}
