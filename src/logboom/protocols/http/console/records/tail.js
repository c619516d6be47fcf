// The newest records of a topic, as they come.
//
// One log is followed with requests that wait; several are asked in turn. What comes while somebody reads in the list,
// or has paused it, is not shown: it is counted, and the place is kept. A log that is written faster than anybody can
// read is followed at its end, and what was passed over is told.

import { get, path, poll } from "../node/api.js";
import { explain } from "../page/dialog.js";
import { el, setText } from "../page/dom.js";
import { count, plural } from "../text/format.js";
import { mergeByTime, readPage } from "./record_pages.js";

const ROWS = 200;
const LAST = 100;
const LAST_OF_MANY = 25;
const BEHIND_MAX = 1_000;
const WAIT_S = 10;
const EVERY_MS = 500;
const EVERY_OF_SEVERAL_MS = 1_000;
export const PARTITIONS_MAX = 32;
/** With a filter. To look at a record is cheaper than to show it. */
const LOOK_BACK = 10_000;
const BEHIND_FILTERED_MAX = 100_000;
const PAGE_BYTES = 1_048_576;

export class Tail {
  #shown = [];
  #waiting = [];
  #places = new Map();
  #passed = 0;
  #limit = ROWS;
  #isPaused = false;
  #begun = false;

  constructor({ topic, partitions, filter, rows, signal, begun, refused }) {
    Object.assign(this, { topic, filter, rows, signal, begun });
    this.failed = (error) => (error.status === 400 || error.code === "partition-not-found" ? refused(error) : this.say(explain(error)));
    this.partitions = partitions.slice(0, PARTITIONS_MAX);
    this.isFiltered = Object.values(filter).some((each) => each !== null);
    this.button = el("button", { type: "button", text: "Pause", onclick: () => this.pause(!this.#isPaused) });
    this.dot = el("i", { class: "dot", "aria-hidden": "true" });
    this.state = el("span", { class: "state" });
    this.news = el("span", { class: "news" });
    this.passed = el("span", { class: "quiet passed" });
    this.note = el("p", { class: "note", role: "status", hidden: true });
    this.element = el("div", { class: "tail buttons" }, this.button, this.dot, this.state, this.news, this.passed);
    for (const { partition, first, committed } of topic.info().partitions) {
      if (this.partitions.includes(partition)) this.#stand(partition, Math.max(first, committed - this.#last()));
    }
    this.#tell();
  }

  start() {
    const every = this.partitions.length === 1 ? EVERY_MS : EVERY_OF_SEVERAL_MS;
    this.run = poll(() => this.#work(), every, this.signal, this.failed);
    this.topic.addEventListener("info", () => this.#tell(), { signal: this.signal });
  }

  pause(isPaused) {
    this.#isPaused = isPaused;
    setText(this.button, isPaused ? "Resume" : "Pause");
    this.release();
  }

  /** Somebody may have stopped reading. */
  release() {
    this.#show();
    if (!this.#isHeld) this.run?.();
  }

  say(words) {
    setText(this.note, words);
    this.note.hidden = !words;
  }

  get #isHeld() {
    return this.#isPaused || this.rows.isHeld;
  }

  #last() {
    if (this.isFiltered) return LOOK_BACK;
    return this.partitions.length > 8 ? LAST_OF_MANY : LAST;
  }

  #stand(partition, seqno, from = seqno) {
    this.#places.set(partition, { seqno, from });
  }

  async #work() {
    if (this.#begun && this.#isHeld) return this.#tell();
    const due = await this.#due();
    const wait = this.#begun && this.partitions.length === 1 ? WAIT_S : null;
    const answers = await Promise.allSettled(due.map((partition) => this.#read(partition, wait)));
    this.#take(answers.filter(({ status }) => status === "fulfilled").map(({ value }) => value));
    if (!this.#begun) this.begun();
    this.#begun = true;
    this.#show();
    const failed = answers.find(({ status }) => status === "rejected");
    if (failed) throw failed.reason;
  }

  /** The partitions that have something new. */
  async #due() {
    if (!this.#begun || this.partitions.length === 1) return this.partitions;
    const info = await get(path("topics", this.topic.name), {}, { signal: this.signal });
    const ends = new Map(info.partitions.map(({ partition, committed }) => [partition, committed]));
    return this.partitions.filter((partition) => ends.get(partition) !== this.#places.get(partition).seqno);
  }

  async #read(partition, wait) {
    try {
      const page = await this.#page(partition, wait);
      const behind = page.committed - page.next_seqno;
      if (behind <= (this.isFiltered ? BEHIND_FILTERED_MAX : BEHIND_MAX)) return page.records;
      const end = page.committed - LAST;
      const kept = this.isFiltered ? page.records : [];
      this.#passed += end - page.next_seqno + page.records.length - kept.length;
      this.#stand(partition, end);
      return [...kept, ...(await this.#page(partition, null)).records];
    } catch (error) {
      this.#recover(partition, error);
      return [];
    }
  }

  async #page(partition, wait) {
    const query = { ...this.filter, from: this.#places.get(partition).from, partition, limit: this.#limit, wait };
    const page = await readPage(this.topic.name, query, this.signal);
    const fits = page.records.length ? Math.floor((page.records.length * PAGE_BYTES) / page.size) : ROWS;
    this.#limit = Math.max(1, Math.min(ROWS, fits));
    this.#stand(partition, page.next_seqno, page.next);
    return page;
  }

  /** Go on from where that is possible, and say what was lost. */
  #recover(partition, error) {
    const { data = {} } = error.body ?? {};
    const { seqno } = this.#places.get(partition);
    if (error.code === "seqno-out-of-range" && seqno < data.first) {
      this.say(`Dropped before they could be shown: ${plural(data.first - seqno, "record")}. The log begins with seqno ${count(data.first)} now.`);
      this.#stand(partition, data.first);
    } else if (error.code === "seqno-out-of-range") {
      this.say(`The log ends before seqno ${count(data.next)} now: what was behind that is lost.`);
      this.#stand(partition, data.next);
    } else if (error.code === "bookmark-lost") {
      this.say(`Records before seqno ${count(seqno)} were lost and others are in their place: this goes on at the end.`);
      this.#stand(partition, seqno, "latest");
    } else if (error.code === "damage") {
      this.say(`${error.message}. This goes on behind it.`);
      this.#stand(partition, data.seqno_until ?? seqno, data.seqno_until ?? "latest");
    } else if (error.code?.startsWith("topic-")) this.topic.failed(error);
    else throw error;
  }

  #take(lists) {
    const came = mergeByTime(lists).reverse();
    const most = [...came, ...this.#waiting];
    if (this.#begun) this.#passed += Math.max(0, most.length - ROWS);
    this.#waiting = most.slice(0, ROWS);
  }

  #show() {
    if (this.#waiting.length && (!this.#isHeld || !this.#shown.length)) {
      this.#shown = [...this.#waiting, ...this.#shown].slice(0, ROWS);
      this.#waiting = [];
      this.rows.show(this.#shown);
    } else if (!this.#shown.length) this.rows.show([]);
    this.#tell();
  }

  #tell() {
    const isHeld = !this.#isPaused && this.rows.isHeld;
    this.dot.className = `dot ${this.#isPaused || isHeld ? "warn" : "good"}`;
    setText(this.state, this.#isPaused ? "Paused" : isHeld ? "Held while you are in the list" : this.isFiltered ? "Live, matching only" : "Live");
    const more = this.#isPaused || isHeld ? this.#unread() : 0;
    const news = this.isFiltered ? `${count(more)} to look through` : `${count(more)} new`;
    setText(this.news, more ? news : "");
    setText(this.passed, this.#passed ? `${plural(this.#passed, "record")} passed over` : "");
  }

  #unread() {
    let unread = this.#waiting.length;
    for (const { partition, committed } of this.topic.info().partitions) {
      const place = this.#places.get(partition);
      if (place) unread += Math.max(0, committed - place.seqno);
    }
    return unread;
  }
}
