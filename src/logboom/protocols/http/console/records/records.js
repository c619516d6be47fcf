// A topic's records: live, or a stretch from any place of the log; everything that is shown is in the address.
//
// ?partition= &from= &tag= &channel= &key= say which records; ?seqno= &partition= open one. Where a record of a list of
// all partitions is open, list=all keeps that list.

import { path } from "../node/api.js";
import { ready } from "../node/shell.js";
import { explain } from "../page/dialog.js";
import { el, setText } from "../page/dom.js";
import { count, plural } from "../text/format.js";
import { Finder } from "./find.js";
import { RecordDialog } from "./record.js";
import { Rows } from "./rows.js";
import { Search } from "./search.js";
import { PARTITIONS_MAX, Tail } from "./tail.js";

const WORDS_MAX = 4;
const FILTERS = ["tag", "channel", "key"];
const NONE = "No record matches from here on. Try other filters, or an earlier place in From.";

export function open(place, topic, route, signal) {
  const view = new Records(place, topic, signal);
  view.follow(route);
  return { move: (next) => view.follow(next) };
}

class Records {
  #wanted = null;
  #turn = null;
  #tail = null;
  #dialog = null;
  #tellEnds = () => {};

  constructor(place, topic, signal) {
    Object.assign(this, { topic, signal });
    this.all = topic.info().partitions.map(({ partition }) => partition);
    this.finder = new Finder({ partitions: this.all, find: (wanted) => this.#find(wanted) });
    this.rows = new Rows({
      several: this.all.length > 1,
      address: (record) => this.#recordAddress(record),
      open: (record) => this.#step(this.#recordAddress(record), "pushState", { isRecord: true }),
      released: () => this.#tail?.release(),
    });
    this.head = el("header", {});
    this.note = el("p", { class: "note", role: "status", hidden: true });
    this.spoken = el("p", { class: "unseen", role: "status" });
    place.replaceChildren(el("div", { class: "stack records-tab" }, this.finder.element,
      el("section", { class: "card", "aria-label": "Found records" }, this.head, this.note, this.rows.element, this.spoken)));
    topic.addEventListener("info", () => this.#tellEnds(), { signal });
    signal.addEventListener("abort", () => this.#dialog?.close());
  }

  /** Show what the address says. */
  follow(route) {
    const wanted = readQuery(route.query);
    if (JSON.stringify(wanted) !== JSON.stringify(this.#wanted)) this.#begin(wanted);
    const seqno = route.query.get("seqno");
    if (seqno !== null && /^\d{1,15}$/.test(seqno)) this.#openRecord(Number(route.query.get("partition") ?? this.all[0]), Number(seqno));
    else this.#dialog?.close();
  }

  #begin(wanted) {
    this.#wanted = wanted;
    this.finder.show(wanted);
    this.#turn?.abort();
    this.#turn = new AbortController();
    this.#tail = null;
    const signal = AbortSignal.any([this.signal, this.#turn.signal]);
    this.rows.show([]);
    this.rows.say("Reading…");
    this.#say("");
    const isNone = wanted.partition !== null && !this.all.includes(wanted.partition);
    if (isNone) return this.#fail(new Error(`There is no partition ${count(wanted.partition)}.`));
    return wanted.from === null ? this.#follow(wanted, signal) : this.#search(wanted, signal);
  }

  /** The live tail. */
  #follow(wanted, signal) {
    const tail = new Tail({
      topic: this.topic, partitions: this.#partitions(wanted), filter: filterOf(wanted), rows: this.rows, signal,
      begun: () => ready(),
      refused: (error) => this.#fail(error),
    });
    this.#tail = tail;
    this.head.replaceChildren(tail.element);
    this.note.replaceWith(tail.note);
    this.note = tail.note;
    const none = tail.isFiltered ? "Nothing matches among the latest records; From looks further back." : "There are no records yet.";
    this.rows.say(`${none} What comes is shown here.`);
    if (wanted.partition === null && this.all.length > PARTITIONS_MAX) {
      tail.say(`Partitions ${this.all[0]} to ${this.all[PARTITIONS_MAX - 1]} of ${count(this.all.length)} are shown: choose one to see another.`);
    }
    tail.start();
  }

  /** A stretch from a place on. */
  async #search(wanted, signal) {
    await this.#run(signal, async (search) => {
      const places = await this.#locate(search, wanted);
      let found = await search.newer(places);
      if (!found.records.length && !search.isFiltered && !search.isStopped) {
        found = await search.older(places);
        if (!search.words.length && found.records.length) search.words.push("Nothing was written there yet: these are the records before it.");
      }
      const isSeqno = /^\d+$/.test(wanted.from);
      return [found, () => isSeqno && this.rows.mark(null, Number(wanted.from))];
    });
  }

  async #locate(search, { partition, from, ...rest }) {
    const named = from.includes("/") ? from.split(" ").map((each) => each.split("/").map(Number)) : null;
    const asked = named ?? this.#partitions({ partition, ...rest }).map((each) => [each, from]);
    const isBookmark = from.length > 40 && !named;
    const wanted = isBookmark ? [[null, from]] : asked.slice(0, PARTITIONS_MAX);
    const places = await Promise.all(wanted.map(([each, at]) => search.locate(each, String(at), each !== null && this.#log(each))));
    return new Map(places.map((place) => [place.partition, place]));
  }

  /** Do `work(search)`, which gives a stretch and what to do when it is shown; meanwhile tell how far it is. */
  async #run(signal, work) {
    const progress = el("span", { class: "state", text: "Reading…" });
    const search = new Search({ topic: this.topic.name, filter: filterOf(this.#wanted), signal, progress: ({ done, total, found }) => {
      setText(progress, `Looked at ${count(done)} of ${plural(total, "record")}, ${count(found)} found`);
    } });
    const stop = el("button", { type: "button", text: "Stop", onclick: () => search.stop() });
    this.head.replaceChildren(el("div", { class: "buttons tail" }, stop, progress));
    try {
      const [found, then] = await work(search);
      this.#showStretch(found, search, signal);
      then?.();
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
    if (!signal.aborted) ready();
  }

  #showStretch(found, search, signal) {
    this.rows.say(search.isStopped ? "Stopped before anything was found." : NONE);
    this.rows.show(found.records);
    this.#say(search.words.slice(0, WORDS_MAX).join(" "));
    const older = el("button", { type: "button", text: "Older", onclick: () => this.#turnTo("older", found.begins, signal) });
    const newer = el("button", { type: "button", text: "Newer", onclick: () => this.#turnTo("newer", found.ends, signal) });
    const live = el("button", { type: "button", class: "quiet end", text: "Go live", onclick: () => this.#find({ ...this.#wanted, from: null }) });
    const number = found.records.length;
    const words = `${number ? plural(number, "record") : "No records"}${search.isStopped ? ", stopped" : ""}${number > 1 ? ", oldest first" : ""}`;
    const state = el("span", { class: "state", text: words });
    setText(this.spoken, words);
    this.#tellEnds = () => {
      older.disabled = ![...found.begins].some(([partition, seqno]) => seqno > this.#log(partition).first);
      newer.disabled = ![...found.ends].some(([partition, seqno]) => seqno < this.#log(partition).committed);
    };
    this.#tellEnds();
    this.head.replaceChildren(el("div", { class: "buttons tail" }, older, newer, state, live));
  }

  /** The stretch before or behind the one that is shown. Its place goes to the address. */
  async #turnTo(way, seqnos, signal) {
    const places = new Map([...seqnos].map(([partition, seqno]) => [partition, { ...this.#log(partition), seqno }]));
    await this.#run(signal, async (search) => {
      const found = await search[way](places);
      const parts = [...found.begins];
      const from = parts.length === 1 ? String(parts[0][1]) : parts.map((each) => each.join("/")).join(" ");
      this.#wanted = { ...this.#wanted, from };
      history.pushState(null, "", this.#address(this.#wanted));
      this.finder.show(this.#wanted);
      return [found, () => this.head.querySelector(way === "older" ? "button:first-child" : "button:nth-child(2)")?.focus({ preventScroll: true })];
    });
  }

  #log(number) {
    return this.topic.info().partitions.find(({ partition }) => partition === number) ?? { first: 0, committed: 0 };
  }

  #partitions({ partition }) {
    return partition === null ? this.all : [partition];
  }

  #say(words) {
    setText(this.note, words);
    this.note.hidden = !words;
  }

  #fail(error) {
    this.#turn.abort();
    this.head.replaceChildren();
    this.rows.say("");
    this.rows.show([]);
    if (error.code === "topic-not-found") return this.topic.failed(error);
    this.finder.complain(explain(error));
    return ready();
  }

  #find(wanted) {
    const address = this.#address(wanted);
    if (location.hash === address) this.#begin(wanted);
    else location.hash = address;
  }

  #address(wanted, more = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...wanted, ...more })) if (value !== null && value !== "") query.set(name, value);
    const text = query.toString();
    return `#${path("topics", this.topic.name, "records")}${text && `?${text}`}`;
  }

  #recordAddress({ partition, seqno }) {
    const list = this.#wanted.partition === null && this.all.length > 1 ? "all" : null;
    return this.#address(this.#wanted, { seqno, partition: this.all.length > 1 ? partition : null, list });
  }

  /** Change the address without leaving what is shown, then show what is new in it. */
  #step(address, how, state) {
    history[how](state, "", address);
    this.follow({ query: new URLSearchParams(address.split("?")[1] ?? "") });
  }

  #openRecord(partition, seqno) {
    if (this.#dialog?.at.partition === partition && this.#dialog.at.seqno === seqno) return;
    this.#dialog ??= new RecordDialog({
      topic: this.topic,
      moved: (...at) => history.replaceState(history.state, "", this.#recordAddress({ partition: at[0], seqno: at[1] })),
      closed: () => this.#closed(),
    });
    this.#dialog.go(partition, seqno).then(ready);
    this.rows.mark(partition, seqno);
  }

  #closed() {
    this.#dialog = null;
    if (this.signal.aborted || !location.hash.includes("seqno=")) return;
    if (history.state?.isRecord) history.back();
    else history.replaceState(null, "", this.#address(this.#wanted));
  }
}

function readQuery(query) {
  const partition = query.get("list") === "all" ? null : query.get("partition");
  return {
    partition: partition !== null && /^\d{1,9}$/.test(partition) ? Number(partition) : null,
    from: ["latest", ""].includes(query.get("from") ?? "") ? null : query.get("from"),
    ...Object.fromEntries(FILTERS.map((name) => [name, query.get(name) || null])),
  };
}

function filterOf(wanted) {
  return Object.fromEntries(FILTERS.map((name) => [name, wanted[name]]));
}
