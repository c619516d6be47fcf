// A stretch of up to a hundred records from any place of one or several logs, with a filter or without.
//
// A stretch knows where it begins and ends in each log, so that what comes before and behind it can be found, with
// nothing twice and nothing left out. A filter may have to look at much: it tells how far it is, and can be stopped.

import { count } from "../text/format.js";
import { mergeByTime, readPage } from "./record_pages.js";

export const FOUND_MAX = 100;
const WINDOW = 5_000;
const WINDOW_MAX = 1_000_000;
const BYTES_MAX = 32 * 1_048_576;

export class Search {
  /** `progress({done, total, found})` is called as it goes. */
  constructor({ topic, filter, signal, progress }) {
    Object.assign(this, { topic, filter, signal, progress });
    this.isFiltered = Object.values(filter).some((each) => each !== null);
    this.isStopped = false;
    this.words = [];
  }

  stop() {
    this.isStopped = true;
  }

  /** Where in a log `from` is: {partition, seqno, first, committed}. What is outside of the log is moved to its nearest end. */
  async locate(partition, from, log) {
    const seqno = /^\d+$/.test(from) ? Number(from) : null;
    if (seqno !== null && log && (seqno < log.first || seqno > log.committed)) return this.#nearest(partition, seqno, log.first, log.committed);
    try {
      const page = await this.#read({ partition, from, limit: 0 });
      return { partition: page.partition, seqno: page.next_seqno, first: page.first, committed: page.committed };
    } catch (error) {
      if (error.code !== "seqno-out-of-range") throw error;
      const { seqno: asked, first, next } = error.body.data;
      return this.#nearest(partition, asked, first, next);
    }
  }

  #nearest(partition, seqno, first, committed) {
    const isGone = seqno < first;
    const end = committed > first ? `the log ends with ${count(committed - 1)}` : "the log is empty";
    this.words.push(`Seqno ${partition}/${seqno} ${isGone ? `is gone: the log begins with ${count(first)}` : `is not written yet: ${end}`}.`);
    return { partition, seqno: isGone ? first : committed, first, committed };
  }

  /** The stretch that begins at these places, by partition. */
  async newer(places) {
    this.#begin(places, ([, place]) => place.committed - place.seqno);
    const logs = await Promise.all([...places].map(([partition, place]) => this.#forward(partition, place)));
    const merged = mergeByTime(logs.map(({ records }) => records)).slice(0, FOUND_MAX);
    const shown = new Set(merged);
    const ends = new Map(logs.map((log) => [log.partition, log.records.find((record) => !shown.has(record))?.seqno ?? log.end]));
    return { records: merged, begins: new Map([...places].map(([partition, { seqno }]) => [partition, seqno])), ends };
  }

  /** The stretch that ends before these places. */
  async older(places) {
    this.#begin(places, ([, place]) => place.seqno - place.first);
    const logs = await Promise.all([...places].map(([partition, place]) => this.#backward(partition, place)));
    const merged = mergeByTime(logs.map(({ records }) => records)).slice(-FOUND_MAX);
    const shown = new Set(merged);
    const begins = new Map(logs.map((log) => {
      const hidden = log.records.findLast((record) => !shown.has(record));
      return [log.partition, hidden ? hidden.seqno + 1 : log.begin];
    }));
    return { records: merged, begins, ends: new Map([...places].map(([partition, { seqno }]) => [partition, seqno])) };
  }

  #begin(places, size) {
    this.total = [...places].reduce((sum, place) => sum + size(place), 0);
    this.done = 0;
    this.found = 0;
  }

  #note(looked, found) {
    this.done += looked;
    this.found += found;
    this.progress({ done: this.done, total: this.total, found: this.found });
  }

  #read(query) {
    return readPage(this.topic, { ...query, ...this.filter, gaps: "skip" }, this.signal);
  }

  async #forward(partition, place) {
    let [records, end, size, from] = [[], place.seqno, 0, place.seqno];
    while (records.length < FOUND_MAX && size < BYTES_MAX && end < place.committed && !this.isStopped) {
      const page = await this.#read({ partition, from, limit: FOUND_MAX - records.length });
      records = [...records, ...page.records];
      this.#note(page.next_seqno - end, page.records.length);
      [end, from] = [page.next_seqno, page.next];
      size += page.size;
      if (page.at_end) break;
    }
    return { partition, records, end };
  }

  /** Windows that grow, from the end backwards: in each the log is read forwards, and the last ones count. */
  async #backward(partition, place) {
    let records = [];
    let begin = place.seqno;
    let window = this.isFiltered ? WINDOW : FOUND_MAX;
    for (; begin > place.first && records.length < FOUND_MAX && !this.isStopped; window = Math.min(2 * window, WINDOW_MAX)) {
      const from = Math.max(place.first, begin - window);
      const found = await this.#within(partition, from, begin);
      records = [...found, ...records];
      begin = from;
    }
    if (records.length <= FOUND_MAX) return { partition, records, begin };
    const kept = records.slice(-FOUND_MAX);
    return { partition, records: kept, begin: records[records.length - FOUND_MAX - 1].seqno + 1 };
  }

  async #within(partition, begin, until) {
    let records = [];
    for (let at = begin; at < until && !this.isStopped; ) {
      const page = await this.#read({ partition, from: at, until, limit: FOUND_MAX });
      // One more than fits, so that it is known where those begin that are kept.
      records = [...records, ...page.records].slice(-FOUND_MAX - 1);
      this.#note(page.next_seqno - at, page.records.length);
      if (page.next_seqno <= at) break;
      at = page.next_seqno;
    }
    return records;
  }
}
