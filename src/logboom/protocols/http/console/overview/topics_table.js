// The table of topics: its columns, and a row for each topic of the page.

import { nodeNow } from "../node/shell.js";
import { el, keyed, set, setName, setText } from "../page/dom.js";
import { sparkline } from "../page/plot.js";
import { ago, bytes, count, instant, plural, retentionWords, short, span } from "../text/format.js";

/** Name of the column, its class, what the node sorts it by, and what stands in a cell: {text, title?, isQuiet?}. */
const COLUMNS = [
  { label: "Name", name: "name", sort: "name" },
  { label: "In", name: "in", sort: "records_in", unit: "/s", meaning: "Records written per second", cell: (topic) => rate(topic.records_in, topic.bytes_in) },
  { label: "Out", name: "out", sort: "records_out", unit: "/s", meaning: "Records read per second", cell: (topic) => rate(topic.records_out, topic.bytes_out) },
  { label: "", name: "recent" },
  { label: "Size", name: "size", sort: "size", meaning: "On disk", cell: size },
  { label: "Records", name: "records", sort: "records", meaning: "That can be read", cell: records },
  { label: "Newest", name: "newest", sort: "newest", meaning: "When something was written last", cell: newest },
  { label: "Retention", name: "retention", meaning: "How much is kept at least, per partition", cell: retention },
  { label: "Cursors", name: "cursors", meaning: "Readers that the node remembers", cell: (topic) => ({ text: count(topic.cursors), isQuiet: !topic.cursors }) },
  { label: "Lag", name: "lag", sort: "lag", meaning: "Of the cursor that is furthest behind", cell: lag },
];

function rate(number, volume) {
  return { text: short(number), title: `${short(number)} records and ${bytes(volume)} per second`, isQuiet: number === 0 };
}

function size({ size_bytes: number }) {
  return { text: bytes(number), title: `${count(number)} bytes` };
}

function records({ records: number }) {
  return { text: short(number), title: count(number), isQuiet: number === 0 };
}

function newest({ newest: at }) {
  return at === null ? { text: "never", isQuiet: true } : { text: ago(at, nodeNow()), title: instant(at) };
}

function retention({ retention: kept }) {
  const words = retentionWords(kept);
  const most = kept.hard_bytes === null ? "" : `; never more than ${bytes(kept.hard_bytes)}`;
  return { text: words, title: `${words}${most}`, isQuiet: words === "forever" };
}

function lag({ lag: number }) {
  return number === null ? { text: "–", isQuiet: true } : { text: short(number), title: plural(number, "record"), isQuiet: number === 0 };
}

/** A table whose head calls `sortBy(sort)`. */
export class TopicsTable {
  constructor(sortBy) {
    this.body = el("tbody", { role: "rowgroup" });
    this.heads = new Map(COLUMNS.map((column) => [column, makeHead(column, sortBy)]));
    this.element = el("table", { class: "list topics", role: "table", "aria-label": "Topics" },
      el("colgroup", {}, COLUMNS.map(({ name }) => el("col", { class: name }))),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, [...this.heads.values()])), this.body);
    this.body.addEventListener("click", follow);
  }

  show(activity, { sort, descending }) {
    for (const [column, head] of this.heads) {
      set(head, "aria-sort", column.sort && column.sort === sort ? (descending ? "descending" : "ascending") : null);
    }
    const update = (row, topic) => fill(row, topic, activity.interval_ms);
    keyed(this.body, this.settled(activity.topics), ({ id }) => id, makeRow, update);
  }

  /** While somebody points at a row it keeps its place, as long as the rows are the same ones. */
  settled(topics) {
    const places = new Map([...this.body.children].map((row, place) => [row.key, place]));
    const isSame = topics.length === places.size && topics.every(({ id }) => places.has(id));
    if (!isSame || this.isAsked || !this.body.matches(":hover")) return topics;
    return [...topics].sort((one, other) => places.get(one.id) - places.get(other.id));
  }
}

function makeHead({ label, name, sort, unit, meaning }, sortBy) {
  const isNumber = name !== "name" && name !== "retention";
  const arrow = el("i", { class: "arrow", "aria-hidden": "true" });
  if (name === "recent") return el("th", { class: "recent", scope: "col", role: "columnheader" }, el("span", { class: "unseen", text: "Last minutes" }));
  const words = sort
    ? el("button", { type: "button", class: "sort", title: meaning, onclick: () => sortBy(sort) }, isNumber ? [arrow, label] : [label, arrow])
    : el("span", { title: meaning, text: label });
  return el("th", { class: isNumber ? `${name} num` : name, scope: "col", role: "columnheader" },
    words, unit && el("span", { class: "unit", text: ` ${unit}` }));
}

function makeRow() {
  const row = el("tr", { role: "row" });
  const link = el("a", { class: "whole-name" });
  const pills = el("span", { class: "pills" });
  const spark = sparkline();
  row.parts = { link, pills, spark, cells: new Map() };
  for (const column of COLUMNS) {
    if (column.name === "name") row.append(el("th", { class: "name", scope: "row", role: "rowheader" }, el("div", {}, link, pills)));
    else if (column.name === "recent") row.append(el("td", { class: "recent", role: "cell" }, spark));
    else row.append(makeCell(column, row.parts.cells));
  }
  return row;
}

function makeCell(column, cells) {
  const value = el("span");
  cells.set(column, value);
  return el("td", { class: `${column.name}${column.name === "retention" ? "" : " num"}`, role: "cell", "data-label": column.label }, value);
}

function fill(row, topic, interval) {
  const { link, pills, spark, cells } = row.parts;
  setName(link, topic.name);
  set(link, "href", `#/topics/${encodeURIComponent(topic.name)}`);
  set(link, "title", `${topic.name}, ${plural(topic.partitions, "partition")}`);
  keyed(pills, pillsOf(topic), ({ text }) => text, makePill, (pill, { title }) => set(pill, "title", title));
  for (const [column, value] of cells) {
    const { text, title = null, isQuiet = false } = column.cell(topic);
    setText(value, text);
    set(value, "title", title);
    set(value, "class", isQuiet ? "quiet" : null);
  }
  spark.draw(topic.recent_in, recentWords(topic.recent_in, interval));
}

function recentWords(values, interval) {
  const records = values.reduce((sum, each) => sum + each, 0);
  return values.length ? `${plural(records, "record")} in the last ${span((values.length * interval) / 1000)}` : "nothing written lately";
}

function pillsOf(topic) {
  const pills = [];
  const logs = plural(topic.damaged, "log");
  if (topic.damaged) pills.push({ text: "damaged", kind: "bad", title: `${logs} of it cannot be written: ${topic.refused ?? "damaged"}` });
  else if (topic.refused !== null) pills.push({ text: "no writes", kind: "warn", title: topic.refused || "It takes no writes." });
  return pills;
}

function makePill({ text, kind }) {
  return el("span", { class: `pill ${kind}`, text });
}

/** A click anywhere in a row is one on its link, unless somebody selects text. */
function follow(event) {
  if (event.target.closest("a") || String(getSelection())) return;
  const link = event.target.closest("tr")?.querySelector("a");
  link?.dispatchEvent(new MouseEvent("click", { bubbles: false, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey, shiftKey: event.shiftKey }));
}
