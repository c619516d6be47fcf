// What the logs of a topic are made of: a strip of segments, and a table that says everything of each.

import { get, path, poll } from "../node/api.js";
import { lastStats, ready } from "../node/shell.js";
import { el, keyed, set, setText } from "../page/dom.js";
import { partitionChoice } from "../page/partition_choice.js";
import { inCode } from "../page/prose.js";
import { bytes, count, instant, moment, plural, span } from "../text/format.js";
import { foretell } from "./retention.js";
import { SegmentStrip, stateOf } from "./segment_strip.js";

const EVERY_MS = 3_000;
const LIMIT = 1_000;
const ROWS = 100;
const COLUMNS = [
  ["Seqnos", "seqnos"], ["Records", "num records"], ["Size", "num size"], ["From", "from"], ["To", "to"], ["Age", "num age"],
  ["Generation", "num generation"], ["State", "state"],
];
const FIX = "Restore the file from a copy; or stop the node, look with `logboom check`, and mend with `logboom repair`: what is sound stays.";

export function open(place, topic, route, signal) {
  const view = new Segments(place, topic, route, signal);
  return { move: (next) => view.move(next) };
}

class Segments {
  constructor(place, topic, route, signal) {
    this.topic = topic;
    this.signal = signal;
    this.segments = [];
    this.until = null;
    this.strip = new SegmentStrip((segment) => this.select(segment, true));
    this.total = el("span", { class: "quiet" });
    this.fate = el("p", { class: "fate" });
    this.choice = partitionChoice(topic.info().partitions.length);
    this.choice.addEventListener("change", () => this.go(this.choice.value));
    this.ask = () => {};
    this.rows = el("tbody", { role: "rowgroup" });
    this.range = el("span", { class: "quiet", role: "status" });
    this.newer = el("button", { type: "button", text: "Newer", onclick: () => this.page(-ROWS) });
    this.older = el("button", { type: "button", text: "Older", onclick: () => this.page(ROWS) });
    this.damaged = el("button", { type: "button", class: "link", onclick: () => this.select(this.segments.find(({ damage }) => damage), true) });
    this.damage = el("p", { class: "topic-state bad", hidden: true }, this.damaged, " ", inCode(FIX));
    this.build(place);
    this.move(route);
    this.ask = poll(() => this.load(), EVERY_MS, signal, topic.failed);
    topic.addEventListener("info", () => this.foretell(), { signal });
  }

  build(place) {
    const head = el("tr", { role: "row" }, COLUMNS.map(([name, kind]) => el("th", { scope: "col", role: "columnheader", class: kind, text: name })));
    this.picker = el("label", { class: "picker end" }, "Partition ", this.choice);
    place.append(el("div", { class: "stack" },
      el("section", { class: "card", "aria-label": "Segments" },
        el("header", {}, el("h2", { text: "Segments" }), this.total, this.picker), this.strip.element, this.fate, this.damage),
      el("section", { class: "card", "aria-label": "Details" },
        el("header", {}, el("h2", { text: "Segment details" }), el("div", { class: "buttons end" }, this.range, this.newer, this.older)),
        el("div", { class: "fit held" },
          el("table", { class: "list segments", role: "table", "aria-label": "Segment details" }, el("thead", { role: "rowgroup" }, head), this.rows)))));
  }

  move(route) {
    const logs = this.topic.info().partitions;
    const wanted = Number(route.query.get("partition") ?? 0);
    const partition = logs.some((log) => log.partition === wanted) ? wanted : 0;
    this.picker.hidden = logs.length < 2;
    this.choice.value = String(partition);
    if (partition !== this.partition) {
      this.partition = partition;
      this.until = null;
      this.strip.selected = null;
      this.ask();
    }
  }

  go(partition) {
    location.hash = `#${path("topics", this.topic.name, "segments")}?partition=${partition}`;
  }

  async load() {
    const asked = this.partition;
    const { segments } = await get(path("topics", this.topic.name, "segments"), { partition: asked, limit: LIMIT }, { signal: this.signal });
    if (asked !== this.partition) return setTimeout(this.ask);
    this.segments = segments;
    this.show();
    ready();
  }

  get now() {
    return lastStats()?.now ?? Date.now() * 1000;
  }

  get log() {
    return this.topic.info().partitions[this.partition];
  }

  show() {
    this.strip.show(this.segments, this.now);
    const size = this.segments.reduce((sum, segment) => sum + segment.size_bytes, 0);
    const more = this.log.segments > this.segments.length && this.segments.length === LIMIT ? `, the newest of ${count(this.log.segments)}` : "";
    setText(this.total, `${plural(this.segments.length, "segment")}${more}, ${bytes(size)}`);
    this.foretell();
    this.showDamage();
    this.showRows();
  }

  foretell() {
    if (this.segments.length) setText(this.fate, foretell(this.topic.info(), this.log, this.segments, this.now));
  }

  showDamage() {
    const damaged = this.segments.filter(({ damage }) => damage).length;
    this.damage.hidden = damaged === 0;
    setText(this.damaged, `${plural(damaged, "segment is", "segments are")} damaged.`);
  }

  /** The newest first, as many as a page has, from the one that was chosen or the very newest on. */
  showRows() {
    const sorted = [...this.segments].reverse();
    const found = this.until === null ? 0 : sorted.findIndex((segment) => segment.first_seqno <= this.until);
    const start = Math.max(0, found);
    const shown = sorted.slice(start, start + ROWS);
    keyed(this.rows, shown, (segment) => segment.first_seqno, (segment) => this.makeRow(segment), (row, segment) => this.updateRow(row, segment));
    setText(this.range, sorted.length > ROWS ? `${count(start + 1)}–${count(start + shown.length)} of ${count(sorted.length)}` : "");
    for (const button of [this.newer, this.older]) button.hidden = sorted.length <= ROWS;
    this.newer.disabled = start === 0;
    this.older.disabled = start + ROWS >= sorted.length;
    this.start = start;
  }

  page(step) {
    const sorted = [...this.segments].reverse();
    const start = Math.max(0, this.start + step);
    this.until = start === 0 ? null : (sorted[start]?.first_seqno ?? this.until);
    this.showRows();
  }

  makeRow(segment) {
    const cells = COLUMNS.map(([name, kind]) => el("td", { role: "cell", class: kind, "data-label": name }));
    const name = el("button", { type: "button", class: "link", onclick: () => this.select(row.segment, false) });
    cells[0].append(name);
    cells[7].append(el("span", { class: "pill" }), el("p", { class: "help damage", hidden: true }));
    const row = el("tr", { role: "row", id: `segment-${segment.first_seqno}` }, cells);
    return row;
  }

  updateRow(row, segment) {
    row.segment = segment;
    const cells = [...row.children];
    const records = segment.next_seqno - segment.first_seqno;
    const last = records > 1 ? ` – ${count(segment.next_seqno - 1)}` : records === 0 ? " –" : "";
    setText(cells[0].firstElementChild, `${count(segment.first_seqno)}${last}`);
    setText(cells[1], count(records));
    setText(cells[2], bytes(segment.size_bytes));
    [[3, segment.oldest], [4, segment.newest]].forEach(([at, time]) => {
      setText(cells[at], time === null ? "–" : moment(time));
      set(cells[at], "title", time === null ? null : instant(time));
    });
    setText(cells[5], segment.newest === null ? "–" : span((this.now - segment.newest) / 1e6));
    setText(cells[6], count(segment.generation));
    const state = stateOf(segment);
    const [pill, words] = cells[7].children;
    setText(pill, state);
    set(pill, "class", `pill ${{ damaged: "bad", active: "good", sealed: "" }[state]}`);
    setText(words, segment.damage ?? "");
    words.hidden = !segment.damage;
    set(row, "aria-current", this.strip.selected === segment.first_seqno && "true");
  }

  select(segment, reveal) {
    this.strip.select(segment);
    const sorted = [...this.segments].reverse();
    const at = sorted.findIndex(({ first_seqno }) => first_seqno === segment.first_seqno);
    if (at < this.start || at >= this.start + ROWS) {
      const start = Math.floor(at / ROWS) * ROWS;
      this.until = start === 0 ? null : sorted[start].first_seqno;
    }
    this.showRows();
    if (reveal) document.getElementById(`segment-${segment.first_seqno}`)?.scrollIntoView({ block: "nearest" });
  }
}
