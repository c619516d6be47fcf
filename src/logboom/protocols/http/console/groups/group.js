// One group: who is a member, who holds which log, how far each has come, and how the lag went.

import { get, path, poll } from "../node/api.js";
import { PagedTable, fillCell } from "../node/paged_table.js";
import { nodeRefusal } from "../node/permission.js";
import { node, nodeNow, ready, report } from "../node/shell.js";
import { el, set, setName, setText } from "../page/dom.js";
import { Plot, sparkline } from "../page/plot.js";
import { ago, count, instant, short, span } from "../text/format.js";
import { visible } from "../text/value.js";
import { GroupActions } from "./group_actions.js";
import { enable, fillState, obstacleOf } from "./group_state.js";

const EVERY_MS = 2_000;
/** Only told again when something has come: then it is asked for at once. */
const SELDOM_MS = 600_000;
/** Of whose topics the lag of the last minutes is asked for: those that lag most. */
const TOPICS_MAX = 8;
/** As long as the node keeps lags. */
const SPAN = 300e6;
const RECENT = 150;
/** What the node keeps a group's places under. */
const OF_GROUP = "@";
const MEMBERS = [
  { label: "Member", name: "member" },
  { label: "Client", name: "client", meaning: "What its program calls itself" },
  { label: "User", name: "user" },
  { label: "Address", name: "address" },
  { label: "Logs", name: "logs", isNumber: true },
  { label: "Joined", name: "joined", isNumber: true },
  { label: "Heard of", name: "heard", isNumber: true, meaning: "Since then it is silent" },
];
const LOGS = [
  { label: "Log", name: "log" },
  { label: "Held by", name: "holder" },
  { label: "Seqno", name: "seqno", isNumber: true, meaning: "Of the record that is read next" },
  { label: "Lag", name: "lag", isNumber: true },
  { label: "Last 5 minutes", name: "recent" },
  { label: "Moved", name: "moved", isNumber: true, meaning: "When its place was moved last" },
];

export function openGroup(main, name, signal) {
  const group = new GroupPage(main, name, signal);
  return { title: name, move: (next) => next.parts[1] === group.name };
}

class GroupPage {
  constructor(main, name, signal) {
    Object.assign(this, { name, signal, found: null, histories: new Map() });
    this.actions = new GroupActions(() => this.refresh());
    this.pill = el("span", { class: "pill" });
    this.buttons = [
      el("button", { type: "button", text: "Reset", onclick: () => this.actions.reset(this.found) }),
      el("button", { type: "button", class: "danger", text: "Delete", onclick: () => this.remove() }),
    ];
    this.why = el("p", { class: "help", hidden: true });
    this.facts = Object.fromEntries(["lag", "members", "logs", "generation"].map((fact) => [fact, el("b", { text: "–" })]));
    this.plot = new Plot({ title: "Lag", series: [{ name: "out", label: "records behind its places" }], format: short, span: SPAN });
    this.members = this.table("Members", MEMBERS, ({ members }) => members, ({ member }) => member, makeMember, fillMember, "Nobody is a member now.");
    this.logs = this.table("Logs", LOGS, ({ logs }) => logs, keyOf, makeLog, (row, log) => this.fillLog(row, log), "It has no places yet.");
    this.body = el("div", { class: "stack groups" }, this.plot.element, this.members.element, this.logs.element);
    main.append(this.head(), this.body);
    this.refresh = poll(() => this.load(), EVERY_MS, signal, (error) => this.fail(error));
    node.addEventListener("stats", () => this.showObstacle(), { signal });
  }

  head() {
    const fact = (label, value) => el("div", { class: "topic-fact" }, el("dt", { text: label }), el("dd", {}, value));
    const { lag, members, logs, generation } = this.facts;
    return el("header", { class: "topic-head group-head" },
      el("p", { class: "up" }, el("a", { href: "#/groups", text: "← All groups" })),
      el("div", { class: "name" }, el("h1", { text: this.name }), this.pill, el("div", { class: "buttons" }, this.buttons)), this.why,
      el("dl", { class: "topic-facts" }, fact("Lag", lag), fact("Members", members), fact("Logs", logs), fact("Generation", generation)));
  }

  table(label, columns, itemsOf, keyOfItem, make, fill, words) {
    const ask = async ({ offset, limit }) => {
      const items = this.found ? itemsOf(this.found) : [];
      return { items: items.slice(offset, offset + limit), total: items.length };
    };
    const shown = () => {};
    return new PagedTable({ label, columns, sort: null, keyOf: keyOfItem, make, fill, ask, every: SELDOM_MS, none: () => words, shown, signal: this.signal, failed: report });
  }

  async load() {
    this.show(await get(path("groups", this.name), {}, { signal: this.signal }));
    await this.remember();
    this.draw();
    ready();
  }

  show(found) {
    this.found = { ...found, logs: found.logs.toSorted((one, other) => other.lag - one.lag || one.topic.localeCompare(other.topic) || one.partition - other.partition) };
    setText(this.facts.lag, count(found.lag));
    setText(this.facts.members, count(found.members.length));
    setText(this.facts.logs, count(found.logs.length));
    setText(this.facts.generation, count(found.generation));
    fillState(this.pill, found);
    this.showObstacle();
    for (const table of [this.members, this.logs]) {
      table.element.hidden = false;
      table.refresh();
    }
  }

  showObstacle() {
    const why = nodeRefusal() || (this.found ? obstacleOf(this.name, this.found.members.length) : "It is not known yet.");
    enable(this.buttons, why);
    setText(this.why, nodeRefusal());
    this.why.hidden = nodeRefusal() === "";
  }

  /** The lags of the last minutes, as the node keeps them with each topic; of a topic that the reader may not look at there are none. */
  async remember() {
    const topics = [...new Set(this.found.logs.map(({ topic }) => topic))].slice(0, TOPICS_MAX);
    const histories = await Promise.all(topics.map((topic) => get(path("activity", "topics", topic), {}, { signal: this.signal }).catch((error) => {
      if (error.status === 404 || error.isForbidden) return null;
      throw error;
    })));
    this.histories = new Map(topics.map((topic, at) => [topic, histories[at]]).filter(([, history]) => history !== null));
  }

  lagsOf({ topic, partition }) {
    const own = this.histories.get(topic)?.cursors.find((each) => each.cursor === OF_GROUP + this.name && each.partition === partition);
    return own?.lag ?? [];
  }

  draw() {
    const sums = new Map();
    for (const log of this.found.logs) {
      const lags = this.lagsOf(log);
      this.histories.get(log.topic)?.at.forEach((at, number) => {
        const lag = lags[number] ?? null;
        const before = sums.get(at) ?? null;
        sums.set(at, lag === null ? before : (before ?? 0) + lag);
      });
    }
    const at = [...sums.keys()].sort((one, other) => one - other);
    this.plot.draw(at, { out: at.map((each) => sums.get(each)) });
    this.plot.element.hidden = at.length === 0;
    for (const row of this.logs.rows.children) this.fillLog(row, row.item);
  }

  fillLog({ parts }, log) {
    const name = `${log.topic}/${log.partition}`;
    fillCell(parts.log, name, name);
    set(parts.log, "href", `#${path("topics", log.topic)}?partition=${log.partition}`);
    const isQueue = this.found?.mode === "queue";
    setName(parts.holder, log.member ?? (isQueue ? `all: ${count(log.in_flight)} in flight` : "nobody"));
    set(parts.holder, "title", log.member ?? (isQueue ? `The members share its records: ${count(log.in_flight)} are worked on, ${count(log.delayed)} rest` : "No member holds it now"));
    parts.holder.classList.toggle("quiet", log.member === null);
    parts.asked.hidden = !log.is_asked_back;
    fillCell(parts.seqno, log.seqno === null ? "–" : count(log.seqno), log.seqno === null ? "It has no place there yet: its first record" : null, log.seqno === null);
    fillCell(parts.lag, count(log.lag));
    fillCell(parts.moved, ago(log.updated, nodeNow()), log.updated === null ? null : instant(log.updated), log.updated === null);
    const lags = this.lagsOf(log).slice(-RECENT).filter((lag) => lag !== null);
    const words = lags.length ? `${count(lags.at(-1))} now, at most ${count(Math.max(...lags))}` : "not known yet";
    parts.spark.draw(lags, `Lag of ${name}: ${words}`);
  }

  remove() {
    const gone = new GroupActions(() => (location.hash = "#/groups"));
    return gone.remove(this.found);
  }

  fail(error) {
    if (error.code !== "group-not-found" && error.status !== 400) {
      ready();
      return report(error);
    }
    this.body.replaceChildren(el("div", { class: "card empty gone", role: "status" },
      el("h2", { text: this.found ? "This group was deleted" : "There is no group of this name" }),
      el("p", { class: "buttons" }, el("a", { class: "button", href: "#/groups", text: "All groups" }))));
    this.found = null;
    this.showObstacle();
    return ready();
  }
}

function keyOf({ topic, partition }) {
  return `${topic}/${partition}`;
}

function makeMember(row) {
  row.parts = { member: el("span", { class: "mono whole-name" }) };
  for (const { name } of MEMBERS.slice(1)) row.parts[name] = el("span");
  return MEMBERS.map(({ name }) => row.parts[name]);
}

function fillMember({ parts }, info) {
  const now = nodeNow();
  setName(parts.member, info.instance ? visible(info.instance) : info.member);
  set(parts.member, "title", info.member);
  fillCell(parts.client, visible(info.client) || "–", visible(info.client) || null, !info.client);
  fillCell(parts.user, info.principal, info.principal);
  fillCell(parts.address, info.address || "–", info.address || null, !info.address);
  fillCell(parts.logs, count(info.logs.length), info.logs.slice(0, 20).join(", ") || null);
  fillCell(parts.joined, ago(info.joined, now), instant(info.joined));
  fillCell(parts.heard, ago(now - info.silent_ms * 1000, now), `Its session ends after ${span(info.session_ms / 1000)} of silence`);
}

function makeLog(row) {
  const asked = el("span", { class: "pill warn", text: "asked back", title: "It is to go to another member when this one has given it back", hidden: true });
  row.parts = { log: el("a", { class: "mono" }), holder: el("span", { class: "mono whole-name" }), asked, seqno: el("span"), lag: el("span"), spark: sparkline("out"), moved: el("span") };
  const { log, holder, seqno, lag, spark, moved } = row.parts;
  return [log, [holder, " ", asked], seqno, lag, spark, moved];
}
