// The cursors of a topic: where they stand, how far behind, how that went, and how to move or delete one.

import { get, path, poll } from "../node/api.js";
import { refusal } from "../node/permission.js";
import { node, ready } from "../node/shell.js";
import { el, keyed, newId, set, setName, setText } from "../page/dom.js";
import { Plot, sparkline } from "../page/plot.js";
import { ago, count, instant, short } from "../text/format.js";
import { CursorActions } from "./cursor_actions.js";

const EVERY_MS = 2_000;
const SEARCH_MS = 200;
const ROWS_MAX = 100;
const RECENT = 150;
/** As long as the node keeps lags. */
const SPAN = 300e6;
const COLUMNS = [
  ["Cursor", "cursor"], ["Partition", "num partition"], ["Seqno", "num seqno"], ["Lag", "num lag"], ["Lag, last 5 minutes", "recent"],
  ["Updated", "num updated"], ["", "actions"],
];

export function open(place, topic, route, signal) {
  new Cursors(place, topic, signal);
  return { move: () => true };
}

class Cursors {
  constructor(place, topic, signal) {
    this.topic = topic;
    this.signal = signal;
    this.order = [];
    this.selected = null;
    this.actions = new CursorActions(topic, () => this.ask());
    this.search = el("input", { type: "search", placeholder: "Name begins with…", "aria-label": "Search cursors", "data-search": true });
    this.search.addEventListener("input", () => this.searchSoon());
    this.note = el("span", { class: "quiet", role: "status" });
    this.obstacle = el("p", { class: "help", hidden: true });
    this.rows = el("tbody", { role: "rowgroup" });
    this.plot = new Plot({ title: "Lag", series: [{ name: "out", label: "records behind" }], format: short, span: SPAN });
    this.whose = this.plot.element.querySelector("h2");
    this.build(place);
    this.ask = poll(() => this.load(), EVERY_MS, signal, topic.failed);
    topic.addEventListener("history", () => this.draw(), { signal });
    node.addEventListener("stats", () => this.showObstacle(), { signal });
    this.showObstacle();
  }

  build(place) {
    const unnamed = () => el("span", { class: "unseen", text: "Actions" });
    const head = el("tr", { role: "row" }, COLUMNS.map(([name, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, name || unnamed())));
    this.table = el("section", { class: "card", "aria-label": "Cursors" },
      el("header", {}, el("h2", { text: "Cursors" }), this.note, el("div", { class: "end search" }, this.search)), this.obstacle,
      el("div", { class: "fit" },
        el("table", { class: "list cursors", role: "table", "aria-label": "Cursors" }, el("thead", { role: "rowgroup" }, head), this.rows)));
    this.empty = el("div", { class: "card empty", hidden: true },
      el("h2", { text: "No cursor stands on this topic" }),
      el("p", {}, "A cursor is a place in the log that the node keeps under a name, so that a reader goes on where it stopped. Reading with one makes it:"),
      el("pre", { text: readCommand(this.topic) }));
    this.plot.element.hidden = true;
    this.table.hidden = true;
    place.append(el("div", { class: "stack" }, this.plot.element, this.table, this.empty));
  }

  searchSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), SEARCH_MS);
  }

  async load() {
    const prefix = this.search.value.trim();
    const { cursors } = await get(path("topics", this.topic.name, "cursors"), { prefix }, { signal: this.signal });
    if (prefix !== this.search.value.trim()) return this.searchSoon();
    this.show(cursors, prefix);
    ready();
  }

  show(cursors, prefix) {
    const found = new Map(cursors.map((cursor) => [keyOf(cursor), cursor]));
    const isSame = found.size <= ROWS_MAX && this.order.length === found.size && this.order.every((key) => found.has(key));
    if (!isSame) this.order = [...found.keys()].sort((one, other) => byLag(found.get(one), found.get(other))).slice(0, ROWS_MAX);
    const shown = this.order.map((key) => found.get(key));
    keyed(this.rows, shown, keyOf, () => this.makeRow(), (row, cursor) => this.updateRow(row, cursor));
    const isEmpty = found.size === 0 && prefix === "";
    this.empty.hidden = !isEmpty;
    this.table.hidden = isEmpty;
    const most = found.size > ROWS_MAX ? `${count(found.size)}, those ${ROWS_MAX} that are furthest behind` : count(found.size);
    setText(this.note, found.size === 0 && prefix ? `None begins with “${prefix}”` : most);
    if (!found.has(this.selected)) this.selected = this.order[0] ?? null;
    this.draw();
  }

  makeRow() {
    const name = el("button", { type: "button", class: "link name whole-name", onclick: () => this.select(row.cursor) });
    const pill = el("span", { class: "pill warn", hidden: true });
    const spark = sparkline("out");
    const move = el("button", { type: "button", text: "Move", onclick: () => this.actions.move(row.cursor) });
    const remove = el("button", { type: "button", class: "danger", text: "Delete", onclick: () => this.actions.remove(row.cursor) });
    const cells = [[name, " ", pill], [], [], [], [spark], [], [el("div", { class: "buttons" }, move, remove)]];
    const row = el("tr", { role: "row" }, cells.map((content, at) => el("td", { role: "cell", class: COLUMNS[at][1], "data-label": COLUMNS[at][0] }, content)));
    const id = newId("cursor");
    set(name, "id", id);
    for (const button of [move, remove]) set(button, "aria-describedby", id);
    row.parts = { name, pill, spark, buttons: [move, remove] };
    return row;
  }

  updateRow(row, cursor) {
    row.cursor = cursor;
    const [, partition, seqno, lag, , updated] = row.children;
    const { name, pill } = row.parts;
    setName(name, cursor.cursor);
    set(name, "title", cursor.cursor);
    setText(partition, cursor.partition);
    setText(seqno, count(cursor.seqno));
    setText(lag, cursor.lag === null ? "–" : count(cursor.lag));
    setText(updated, ago(cursor.updated));
    set(updated, "title", instant(cursor.updated));
    const state = stateOf(cursor, this.topic.info());
    pill.hidden = state === null;
    setText(pill, state?.[0]);
    set(pill, "title", state?.[1]);
    this.enable(row);
  }

  showObstacle() {
    this.why = refusal(this.topic.name, { cursor: true });
    setText(this.obstacle, this.why);
    this.obstacle.hidden = this.why === "";
    for (const row of this.rows.children) this.enable(row);
  }

  enable(row) {
    const why = this.why || this.actions.unreachable(row.cursor);
    for (const button of row.parts.buttons) {
      button.disabled = why !== "";
      set(button, "title", why || null);
    }
  }

  select(cursor) {
    this.selected = keyOf(cursor);
    this.draw();
  }

  draw() {
    const history = this.topic.history();
    const lags = new Map((history?.cursors ?? []).map((each) => [keyOf(each), each.lag]));
    for (const row of this.rows.children) {
      const recent = (lags.get(row.key) ?? []).slice(-RECENT).filter((lag) => lag !== null);
      const words = recent.length ? `${count(recent.at(-1))} now, at most ${count(Math.max(...recent))}` : "not known yet";
      row.parts.spark.draw(recent, `Lag of ${row.cursor.cursor}: ${words}`);
      set(row, "aria-current", row.key === this.selected && "true");
    }
    const row = [...this.rows.children].find((each) => each.key === this.selected);
    this.plot.element.hidden = !row || !history;
    if (!row || !history) return;
    const { cursor, partition } = row.cursor;
    setText(this.whose, this.topic.info().partitions.length > 1 ? `Lag of ${cursor} in partition ${partition}` : `Lag of ${cursor}`);
    this.plot.draw(history.at, { out: lags.get(row.key) ?? history.at.map(() => null) });
  }
}

function keyOf({ cursor, partition }) {
  return `${partition}/${cursor}`;
}

function byLag(one, other) {
  return (other.lag ?? -1) - (one.lag ?? -1) || one.cursor.localeCompare(other.cursor) || one.partition - other.partition;
}

/** What is the matter with it, in a word and a sentence; null where nothing is. */
function stateOf(cursor, info) {
  if (cursor.topic_id !== info.id) return ["left over", "It stands in an earlier topic of this name."];
  const log = info.partitions[cursor.partition];
  if (!log || cursor.seqno >= log.first) return null;
  return ["left behind", `The log begins with seqno ${count(log.first)} by now: ${count(log.first - cursor.seqno)} records are gone unread.`];
}

function readCommand(topic) {
  const log = topic.info().partitions.length > 1 ? `${topic.name}/0` : topic.name;
  return `logboom read ${log} --cursor billing`;
}
