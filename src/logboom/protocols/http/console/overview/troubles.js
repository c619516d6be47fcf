// What the node refused lately, and what went wrong in it.

import { nodeNow } from "../node/shell.js";
import { openDialog } from "../page/dialog.js";
import { el, keyed, set, setText } from "../page/dom.js";
import { ago, count, instant } from "../text/format.js";

const SHOWN = 6;
const ALL = 200;
const STATES = { rejection: "warn", warning: "warn", error: "bad" };
const WORDS = { rejection: "refused", warning: "warning", error: "error" };

/** Rows by their place, not by what they say: a trouble that comes again changes words, and moves nothing. */
class List {
  constructor() {
    this.element = el("ol", { class: "troubles" });
  }

  show(incidents) {
    keyed(this.element, incidents.map((incident, place) => ({ incident, place })), ({ place }) => place, makeRow, (row, { incident }) => fill(row, incident));
  }
}

function makeRow() {
  const row = el("li");
  row.parts = { dot: el("i"), name: el("b"), kind: el("span", { class: "quiet" }), times: el("span", { class: "times" }), when: el("time"), text: el("p") };
  const { dot, name, kind, times, when, text } = row.parts;
  row.append(el("div", {}, dot, name, kind, times, when), text);
  return row;
}

function fill(row, incident) {
  const { dot, name, kind, times, when, text } = row.parts;
  set(dot, "class", `dot ${STATES[incident.kind] ?? ""}`);
  setText(name, incident.name);
  set(name, "title", incident.name);
  setText(kind, WORDS[incident.kind] ?? incident.kind);
  set(kind, "class", incident.kind === "rejection" ? "unseen" : "quiet"); // the name of a refusal says it
  setText(times, incident.count > 1 ? `${count(incident.count)}×` : "");
  setText(when, ago(incident.last, nodeNow()));
  set(when, "title", incident.count > 1 ? `first ${instant(incident.first)}, last ${instant(incident.last)}` : instant(incident.last));
  setText(text, incident.text);
  set(text, "title", incident.text);
}

export class Troubles {
  constructor() {
    this.incidents = [];
    this.list = new List();
    this.whole = null;
    this.all = el("button", { type: "button", class: "quiet end", onclick: () => this.openAll() });
    this.none = el("p", { class: "calm", text: "None. What the node refuses, and what it warns of, is listed here." });
    this.element = el("section", { class: "card", "aria-label": "Recent troubles" },
      el("header", {}, el("h2", { text: "Recent troubles" }), this.all), this.none, this.list.element);
    this.show([]);
  }

  show(incidents) {
    this.incidents = incidents.slice(0, ALL);
    this.none.hidden = incidents.length > 0;
    this.list.element.hidden = incidents.length === 0;
    setText(this.all, `All ${count(this.incidents.length)}`);
    this.all.style.visibility = incidents.length > 0 ? "visible" : "hidden";
    this.list.show(this.incidents.slice(0, SHOWN));
    this.whole?.show(this.incidents);
  }

  async openAll() {
    this.whole = new List();
    this.whole.element.classList.add("whole");
    this.whole.show(this.incidents);
    await openDialog({ title: "Recent troubles", body: [this.whole.element], wide: true });
    this.whole = null;
  }
}
