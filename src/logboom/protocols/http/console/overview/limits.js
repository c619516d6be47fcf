// How much of its limits the node uses, and who is connected.

import { el, keyed, set, setText } from "../page/dom.js";
import { bytes, count, percent, trimmed } from "../text/format.js";

const WARN = 0.8;
const BAD = 0.95;
const PROTOCOLS = { binary: "Binary", logd: "logd", http: "HTTP" };

/** What is metered: how much there is of it, and what it can be; null where the node does not say. */
const METERS = [
  ["Disk", bytes, ({ disk }) => disk && { used: disk.total_bytes - disk.free_bytes, most: disk.total_bytes, ...diskNotes(disk) }],
  ["Memory", bytes, (stats) => ({ used: stats.memory_bytes, most: stats.memory_limit_bytes })],
  ["Open files", count, (stats) => ({ used: stats.open_files, most: stats.open_files_limit })],
  ["Connections", count, (stats) => ({ used: total(stats.connections), most: stats.limits.connections })],
  ["Topics", count, (stats) => ({ used: stats.topics, most: stats.limits.topics })],
  ["Not synced yet", bytes, (stats) => ({ used: stats.writes.unsynced_bytes, most: stats.limits.unsynced_bytes })],
];

function diskNotes(disk) {
  const note = `${bytes(disk.free_bytes)} free, ${bytes(disk.logs_bytes)} in logs`;
  return { note, reserved: disk.reserve_bytes, isOut: disk.free_bytes <= disk.reserve_bytes };
}

function total(counts) {
  return Object.values(counts).reduce((sum, each) => sum + each, 0);
}

class Meter {
  constructor([name, words, look]) {
    Object.assign(this, { name, words, look });
    this.value = el("span", { text: "–" });
    this.bar = el("i");
    this.reserve = el("u", { hidden: true });
    const spoken = { role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": 0 };
    this.track = el("div", { class: "track", ...spoken }, this.bar, this.reserve);
    this.note = el("p", { class: "note" });
    this.note.hidden = name !== "Disk";
    this.element = el("div", { class: "meter" }, el("div", { class: "words" }, el("b", { text: name }), this.value), this.track, this.note);
  }

  show(stats) {
    const { used = 0, most = 0, note = "\u00a0", reserved = 0, isOut = false } = this.look(stats) ?? {};
    const share = most ? Math.min(1, used / most) : 0;
    const words = most ? `${trimmed(this.words(used))} of ${trimmed(this.words(most))}` : used ? this.words(used) : "not known";
    set(this.element, "class", `meter ${isOut || share >= BAD ? "bad" : share >= WARN ? "warn" : ""}`);
    setText(this.value, words);
    setText(this.note, note);
    set(this.element, "title", most ? `${this.name}: ${percent(used / most)} used` : null);
    this.bar.style.width = `${share * 100}%`;
    this.reserve.hidden = !reserved;
    set(this.reserve, "title", reserved ? `Reserve: writes are refused while less than ${trimmed(bytes(reserved))} is free` : null);
    this.reserve.style.width = `${most ? Math.max(1, (reserved / most) * 100) : 0}%`;
    const spoken = { "aria-valuemax": Math.max(most, used, 1), "aria-valuenow": used, "aria-valuetext": words };
    for (const [name, value] of Object.entries(spoken)) set(this.track, name, value);
  }
}

export function makeLimits() {
  const meters = METERS.map((one) => new Meter(one));
  const element = el("section", { class: "card limits", "aria-label": "Limits" },
    el("header", {}, el("h2", { text: "Limits" })), meters.map((meter) => meter.element));
  return { element, show: (stats) => meters.forEach((meter) => meter.show(stats)) };
}

export function makeConnections() {
  const list = el("dl", { class: "tiles" });
  const element = el("section", { class: "card", "aria-label": "Connections" }, el("header", {}, el("h2", { text: "Connections" })), list);
  const show = (stats) => {
    const rows = Object.entries(stats.connections).map(([name, number]) => [PROTOCOLS[name] ?? name, number]);
    rows.push(["Subscriptions", stats.reads.subscriptions], ["Readers waiting", stats.reads.waiting]);
    keyed(list, rows, ([name]) => name, makeFact, (row, [, number]) => setText(row.lastElementChild, count(number)));
  };
  return { element, show };
}

function makeFact([name]) {
  return el("div", {}, el("dt", { text: name }), el("dd"));
}
