// The head of a topic: its name, what is the matter with it, what is in it and what it does.

import { isInternal, refusal } from "../node/permission.js";
import { lastStats } from "../node/shell.js";
import { el, keyed, set, setText } from "../page/dom.js";
import { sparkline } from "../page/plot.js";
import { ago, bytes, count, instant, plural, short } from "../text/format.js";
import { writeRecord } from "./write.js";

const RECENT_US = 300e6;
const ROWS_MAX = 100;
const ROWS_OPEN = 4;
const NARROW = "(max-width: 48rem)";

/** Whether the user wants to see the partitions; null while nobody has said. */
let isOpen = null;

export class Head {
  constructor(topic) {
    this.topic = topic;
    this.pills = el("span", { class: "pills" });
    this.write = el("button", { type: "button", class: "first", text: "Write a record", onclick: () => writeRecord(topic.info()) });
    this.facts = Object.fromEntries(["records", "size", "newest", "in", "out", "partitions"].map((name) => [name, el("b", { text: "–" })]));
    this.lines = { in: sparkline("in"), out: sparkline("out") };
    this.trouble = el("p", { class: "trouble", hidden: true });
    this.partitions = new Partitions();
    this.element = el("header", { class: "topic-head" },
      el("p", { class: "up" }, el("a", { href: "#/", text: "← All topics" })),
      el("div", { class: "name" }, el("h1", { text: topic.name }), this.pills, this.write),
      this.trouble, this.factList(), this.partitions.element);
  }

  factList() {
    const fact = (label, ...content) => el("div", { class: "topic-fact" }, el("dt", { text: label }), el("dd", {}, content));
    return el("dl", { class: "topic-facts" },
      fact("Records", this.facts.records), fact("Size", this.facts.size), fact("Newest", this.facts.newest),
      fact("Partitions", this.facts.partitions),
      fact("In", this.facts.in, this.lines.in), fact("Out", this.facts.out, this.lines.out));
  }

  show() {
    const info = this.topic.info();
    const logs = info.partitions;
    setText(this.facts.records, count(logs.reduce((sum, log) => sum + log.committed - log.first, 0)));
    setText(this.facts.size, bytes(logs.reduce((sum, log) => sum + log.size_bytes, 0)));
    const newest = logs.reduce((most, log) => (log.newest !== null && (most === null || log.newest > most) ? log.newest : most), null);
    setText(this.facts.newest, ago(newest));
    set(this.facts.newest, "title", newest === null ? null : instant(newest));
    setText(this.facts.partitions, count(logs.length));
    const why = refusal(info.name);
    this.write.disabled = why !== "";
    set(this.write, "title", why || null);
    this.showState(info);
    this.partitions.show(logs);
  }

  showState(info) {
    const broken = info.partitions.filter((log) => log.refusal);
    const states = [
      isInternal(info.name) && ["internal", "", "Internal", "Kept by the node itself"],
      lastStats()?.replica && ["replica", "", "Replica", `Copied from ${lastStats().replica.source}`],
      info.refused && ["refused", "warn", "Takes no writes", info.refused],
      broken.length > 0 && ["damaged", "bad", info.partitions.length > 1 ? `${plural(broken.length, "partition")} damaged` : "Damaged", broken[0].refusal],
    ].filter(Boolean);
    keyed(this.pills, states, ([key]) => key, ([, kind]) => el("span", { class: `pill ${kind}` }), (pill, [, , text, title]) => {
      setText(pill, text);
      set(pill, "title", title);
    });
    const said = [
      info.refused && `Writes are refused: ${info.refused}.`,
      ...broken.slice(0, 3).map((log) => `Partition ${log.partition} takes no writes: ${log.refusal}.`),
      broken.length > 3 && `So do ${broken.length - 3} more.`,
    ].filter(Boolean);
    setText(this.trouble, said.join(" "));
    this.trouble.hidden = said.length === 0;
    set(this.trouble, "class", broken.length ? "topic-state bad" : "topic-state");
  }

  draw() {
    const history = this.topic.history();
    const seconds = history.interval_ms / 1000;
    const first = history.at.findIndex((at) => at > history.at[history.at.length - 1] - RECENT_US);
    for (const [name, column] of [["in", history.records_in], ["out", history.records_out]]) {
      const rates = column.slice(Math.max(0, first)).map((number) => number / seconds);
      const now = rates.length ? rates[rates.length - 1] : 0;
      setText(this.facts[name], `${short(now)}/s`);
      this.lines[name].draw(rates, `Records ${name} in the last 5 minutes: ${short(now)} per second now, at most ${short(Math.max(0, ...rates))}`);
    }
  }
}

/** From where to where each partition goes; for topics that have several. */
class Partitions {
  constructor() {
    this.rows = el("tbody", {});
    this.rest = el("p", { class: "help", hidden: true });
    const names = ["Partition", "First", "Committed", "Size", "Segments", "Newest"];
    const head = el("thead", {}, el("tr", {}, names.map((name, at) => el("th", { scope: "col", class: at ? "num" : null, text: name }))));
    this.summary = el("summary", { text: "Partitions", onclick: () => (isOpen = !this.element.open) });
    this.element = el("details", { class: "partitions", hidden: true }, this.summary,
      el("div", { class: "scroll" }, el("table", { class: "list", "aria-label": "Partitions" }, head, this.rows)), this.rest);
  }

  show(logs) {
    if (this.element.hidden && logs.length > 1) {
      this.element.hidden = false;
      this.element.open = isOpen ?? (logs.length <= ROWS_OPEN && !matchMedia(NARROW).matches);
    }
    keyed(this.rows, logs.length > 1 ? logs.slice(0, ROWS_MAX) : [], (log) => log.partition, makeRow, updateRow);
    this.rest.hidden = logs.length <= ROWS_MAX;
    setText(this.rest, `and ${count(logs.length - ROWS_MAX)} more`);
  }
}

function makeRow(log) {
  const name = el("th", { scope: "row" }, String(log.partition), " ", el("span", { class: "pill bad", text: "takes no writes", hidden: true }));
  return el("tr", {}, name, [1, 2, 3, 4, 5].map(() => el("td", { class: "num" })));
}

function updateRow(row, log) {
  const [name, ...cells] = row.children;
  const pill = name.lastElementChild;
  pill.hidden = !log.refusal;
  set(pill, "title", log.refusal);
  [count(log.first), count(log.committed), bytes(log.size_bytes), count(log.segments), ago(log.newest)].forEach((text, at) => setText(cells[at], text));
}
