// The table of records, newest on top or in the order of the log. A row is a link to its record.

import { el, set, setText } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { bytes, count } from "../text/format.js";
import { fieldRuns, fieldText, localDay, localTime, visible, visibleRuns, cut } from "../text/value.js";

const SHOWN_CHARACTERS = 80;
const TITLE_CHARACTERS = 1_000;
const TAGS_SHOWN = 4;
const COLUMNS = [["seqno", "Seqno"], ["time", "Time"], ["key", "Key"], ["channel", "Channel"], ["tags", "Tags"], ["value", "Value"], ["size", "Size"]];
/** Columns that many topics do not use: they appear with the first record that has something there. */
const OPTIONAL = { key: (record) => record.key !== null, channel: (record) => record.channel !== null, tags: (record) => record.tags.length > 0 };

export class Rows {
  /** `address(record)` is where a row leads; `open(record)` is called instead where it is clicked. */
  constructor({ several, address, open, released }) {
    this.several = several;
    this.address = address;
    this.open = open;
    this.marked = { partition: null, seqno: null };
    this.body = el("tbody", { role: "rowgroup", onclick: (event) => this.#click(event), onkeydown: moveByKeys });
    const heads = COLUMNS.map(([name, label]) => el("th", { scope: "col", role: "columnheader", class: name, text: label }));
    this.table = el("table", { class: "list records", role: "table", "aria-label": "Records" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)), this.body);
    for (const name of Object.keys(OPTIONAL)) this.table.classList.add(`no-${name}`);
    this.empty = el("div", { class: "empty", hidden: true });
    this.element = el("div", {}, this.table, this.empty);
    this.#watchPointer(released);
  }

  /** Whether somebody reads here: then nothing may move. */
  get isHeld() {
    const focused = document.activeElement;
    const selection = getSelection();
    const isSelected = selection && !selection.isCollapsed && this.body.contains(selection.anchorNode);
    return this.isPointed || isSelected || (this.body.contains(focused) && focused.matches(":focus-visible"));
  }

  /** The pointer counts once it is moved here; not where the list came to be below it. */
  #watchPointer(released) {
    this.isPointed = false;
    const release = () => {
      this.isPointed = false;
      released?.();
    };
    this.body.addEventListener("pointermove", (event) => (this.isPointed = event.pointerType === "mouse"));
    this.body.addEventListener("pointerleave", release);
    this.body.addEventListener("focusout", () => setTimeout(() => released?.()));
  }

  /** Rows stay where they are and are filled anew: nothing is laid out again. */
  show(records) {
    for (const [name, has] of Object.entries(OPTIONAL)) if (records.some(has)) this.table.classList.remove(`no-${name}`);
    const rows = this.body.rows;
    while (rows.length > records.length) rows[rows.length - 1].remove();
    records.forEach((record, number) => this.#fill(rows[number] ?? this.body.appendChild(makeRow()), record));
    this.table.hidden = records.length === 0;
    this.empty.hidden = records.length > 0;
  }

  /** Make a record stand out, in every partition where none is named. */
  mark(partition, seqno) {
    this.marked = { partition, seqno };
    for (const row of this.body.rows) this.#markRow(row);
  }

  #markRow(row) {
    const { partition, seqno } = this.marked;
    row.classList.toggle("marked", row.record.seqno === seqno && (partition === null || row.record.partition === partition));
  }

  say(...words) {
    this.empty.replaceChildren(...words);
  }

  #fill(row, record) {
    const [number, time, key, channel, tags, content, size] = row.cells;
    set(number.firstElementChild, "href", this.address(record));
    if (row.record === record) return;
    row.record = record;
    setText(number.firstElementChild, this.several ? `${record.partition}/${count(record.seqno)}` : count(record.seqno));
    set(number.firstElementChild, "aria-label", `Record ${record.partition}/${record.seqno}`);
    fillCell(time, timeTitle(record.timestamp), [shortTime(record.timestamp)]);
    fillCell(key, fieldText(record.key, TITLE_CHARACTERS), shownRuns(fieldRuns(record.key, SHOWN_CHARACTERS)));
    fillCell(channel, visible(record.channel ?? ""), shownRuns(visibleRuns(cut(record.channel ?? "", SHOWN_CHARACTERS))));
    fillCell(tags, record.tags.map(visible).join(", ").slice(0, TITLE_CHARACTERS), chips(record));
    fillCell(content, null, value(record.value));
    fillCell(size, null, [record.value.kind === "none" ? "–" : bytes(record.value.size)]);
    this.#markRow(row);
  }

  #click(event) {
    const row = event.target.closest("tr");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || !getSelection().isCollapsed) return;
    event.preventDefault();
    row.cells[0].firstElementChild.focus({ preventScroll: true });
    this.isPointed = false;
    this.open(row.record);
  }
}

function moveByKeys(event) {
  const to = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = to && event.target.closest("tr")?.[to];
  if (!row) return;
  event.preventDefault();
  row.cells[0].firstElementChild.focus();
}

function makeRow() {
  const cells = COLUMNS.map(([name]) => el("td", { role: "cell", class: name }));
  cells[0].append(el("a", { href: "#" }));
  return el("tr", { role: "row" }, cells);
}

function fillCell(cell, title, children) {
  set(cell, "title", title || null);
  cell.replaceChildren(...children);
}

export function chip(text) {
  return el("span", { class: "chip", title: cut(visible(text), TITLE_CHARACTERS) }, shownRuns(visibleRuns(cut(text, SHOWN_CHARACTERS))));
}

function chips(record) {
  const more = record.tags.length - TAGS_SHOWN + record.moreTags;
  const shown = record.tags.slice(0, TAGS_SHOWN).map(chip);
  return more > 0 ? [...shown, el("span", { class: "quiet", text: ` +${more}` })] : shown;
}

function value({ kind, runs }) {
  if (kind === "none") return [el("span", { class: "pill", text: "tombstone" })];
  if (!runs.length) return [el("span", { class: "quiet", text: "empty" })];
  return shownRuns(runs);
}

function shortTime(timestamp) {
  if (typeof timestamp !== "string") return localTime(timestamp);
  const date = new Date(timestamp);
  const [day, clock] = localTime(timestamp).split(" ");
  return day === localDay(new Date()) ? clock.slice(0, 12) : `${localDay(date)} ${clock.slice(0, 8)}`;
}

function timeTitle(timestamp) {
  return typeof timestamp === "string" ? `${localTime(timestamp)} local time, ${timestamp}` : null;
}
