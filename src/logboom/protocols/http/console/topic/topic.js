// A topic: its head, its tabs, and which of them is open.
//
// One poll keeps what every tab needs to know of the topic. A tab is a function `open(place, topic, route, signal)`; it
// may give {move}, which takes a change of the address or says false. A topic that is gone stays on the page as words.

import * as cursors from "../cursors/cursors.js";
import { get, path, poll } from "../node/api.js";
import { node, ready, report } from "../node/shell.js";
import { closeDialogs, notice } from "../page/dialog.js";
import { el, set } from "../page/dom.js";
import * as records from "../records/records.js";
import * as segments from "../segments/segments.js";
import * as settings from "../settings/settings.js";
import { clock } from "../text/format.js";
import { Head } from "./topic_head.js";

const EVERY_MS = 2_000;
const TABS = {
  records: ["Records", records.open],
  segments: ["Segments", segments.open],
  cursors: ["Cursors", cursors.open],
  settings: ["Settings", settings.open],
};
const NOT_IN_A_PATH = [".", ".."];

/** What is known of a topic. Tells `info` and `history` whenever they came; `info()` and `history()` are the last ones. */
class Topic extends EventTarget {
  #info = null;
  #history = null;
  #turn = 0;
  refresh = () => {};
  /** Set while it is being deleted: nobody asks for it meanwhile. */
  leaving = false;

  constructor(name) {
    super();
    this.name = name;
  }

  info() {
    return this.#info;
  }

  history() {
    return this.#history;
  }

  /** Changes with what is known: an answer that was asked for before that is not taken. */
  get turn() {
    return this.#turn;
  }

  learn(info) {
    this.#turn += 1;
    this.#info = info;
    this.dispatchEvent(new Event("info"));
  }

  remember(history) {
    this.#history = history;
    this.dispatchEvent(new Event("history"));
  }

  /** For what a tab's own request failed with: a topic that is gone is told once, by the frame. */
  failed = (error) => {
    if (error.status === 404 || error.status === 410) this.refresh();
    else report(error);
  };
}

export function open(main, route, signal) {
  const name = route.parts[1];
  if (name === undefined) {
    location.replace("#/");
    return { title: "" };
  }
  let life = new AbortController();
  let frame = null;
  const begin = (at) => {
    life.abort();
    life = new AbortController();
    document.documentElement.dataset.ready = "false";
    const over = AbortSignal.any([signal, life.signal]);
    frame = NOT_IN_A_PATH.includes(name) ? showUnreachable(main, name) : watch(main, name, at, over, begin, () => life.abort());
  };
  begin(route);
  return { title: name, move: (next) => next.parts[1] === name && frame.move(next) };
}

/** Keep looking at the topic; `again(route)` begins anew, `stop()` ends it. */
function watch(main, name, route, signal, again, stop) {
  const topic = new Topic(name);
  const place = el("div", { class: "topic" });
  main.replaceChildren(place);
  let frame = null;
  let current = route;
  const work = async () => {
    if (topic.leaving) return;
    const { turn } = topic;
    const info = await get(path("topics", name), {}, { signal });
    if (topic.leaving || turn !== topic.turn) return;
    const before = topic.info();
    if (before && before.id !== info.id) {
      notice(`${name} was deleted and made anew. This is the new one.`);
      return again(current);
    }
    topic.learn(info);
    frame ??= new Frame(place, topic, current, signal);
    topic.remember(await get(path("activity", "topics", name), {}, { signal }));
  };
  topic.refresh = poll(work, EVERY_MS, signal, (error) => {
    const isNoName = error.status === 400 && topic.info() === null;
    if (error.code !== "topic-not-found" && !isNoName) return report(error);
    stop();
    place.replaceChildren(...gone(name, topic.info() !== null, () => again(current), error.body?.data?.near ?? []));
    ready();
  });
  return {
    move: (next) => {
      current = next;
      frame?.move(next);
      return true;
    },
  };
}

class Frame {
  constructor(place, topic, route, signal) {
    this.topic = topic;
    this.signal = signal;
    this.head = new Head(topic, signal);
    this.links = new Map(Object.entries(TABS).map(([name, [label]]) => [name, el("a", { href: tabAddress(topic.name, name), text: label })]));
    this.place = el("div", { class: "tab" });
    place.replaceChildren(this.head.element, el("nav", { class: "tabs", "aria-label": "Topic" }, [...this.links.values()]), this.place);
    topic.addEventListener("info", () => this.head.show(), { signal });
    topic.addEventListener("history", () => this.head.draw(), { signal });
    node.addEventListener("stats", () => this.head.show(), { signal });
    this.head.show();
    this.move(route);
  }

  move(route) {
    const name = Object.hasOwn(TABS, route.parts[2] ?? "") ? route.parts[2] : "records";
    if (name === this.name && this.tab?.move && this.tab.move(route) !== false) return;
    this.leaving?.abort();
    if (this.name !== undefined) closeDialogs();
    this.leaving = new AbortController();
    this.name = name;
    document.documentElement.dataset.ready = "false";
    for (const [each, link] of this.links) set(link, "aria-current", each === name && "page");
    this.place.replaceChildren();
    this.tab = TABS[name][1](this.place, this.topic, route, AbortSignal.any([this.signal, this.leaving.signal]));
  }
}

export function tabAddress(topic, tab) {
  return `#${path("topics", topic, tab)}`;
}

function gone(name, wasThere, again, near) {
  return [
    heading(name),
    el("div", { class: "card empty gone", role: "status" },
      el("h2", { text: wasThere ? `This topic was deleted (seen at ${clock(Date.now() * 1000)})` : "There is no topic of this name" }),
      el("p", {}, wasThere ? "Its records and cursors are gone with it." : "It was never made, or it was deleted."),
      !wasThere && near.length > 0 && el("p", {}, "Did you mean ", near.flatMap((each, number) =>
        [number > 0 && " or ", el("a", { href: `#${path("topics", each)}`, text: each })]), "?"),
      el("p", { class: "buttons" }, allTopics(), el("button", { type: "button", text: "Look again", onclick: again }))),
  ];
}

function heading(name) {
  return el("header", { class: "topic-head" },
    el("p", { class: "up" }, el("a", { href: "#/", text: "← All topics" })), el("div", { class: "name" }, el("h1", { text: name })));
}

function allTopics() {
  return el("a", { class: "button", href: "#/", text: "All topics" });
}

function showUnreachable(main, name) {
  main.replaceChildren(heading(name),
    el("div", { class: "card empty gone" },
      el("p", {}, "A browser takes this name for a directory and cannot ask for it. The command line can: ",
        el("code", { text: `logboom topic show ${name}` }), "."),
      el("p", {}, allTopics())));
  ready();
  return { move: () => true };
}
