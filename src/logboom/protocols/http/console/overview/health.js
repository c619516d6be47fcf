// One line that says how the node is: the worst of what a checkup finds, its cause and what to do about it.

import { el, keyed, newId, set, setText } from "../page/dom.js";
import { clock, count } from "../text/format.js";

const STATES = { damage: "bad", warning: "warn" };
const WORDS = { damage: "damage", warning: "warning", harmless: "harmless", info: "note" };
const REFUSED = { severity: "warning", kind: "writes refused", where: "the node", advice: "`logboom accept` takes writes again, and so does the button here" };

/** Text with what stands in backticks as code. */
function setAdvice(element, text) {
  if (element.said === text) return;
  element.said = text;
  element.replaceChildren(...text.split("`").map((part, number) => (number % 2 ? el("code", { text: part }) : part)));
}

/** The region "Health"; `actions` stand at its end. */
export class Health {
  constructor(actions) {
    this.dot = el("i", { class: "dot", "aria-hidden": "true" });
    this.cause = el("p", { class: "cause" });
    this.spoken = el("p", { class: "unseen", role: "status" });
    this.fix = el("p", { class: "fix" });
    this.more = el("button", { type: "button", class: "quiet more", "aria-expanded": "false", onclick: () => this.toggle() });
    this.list = el("ul", { id: newId("findings"), class: "findings", hidden: true });
    set(this.more, "aria-controls", this.list.id);
    this.element = el("section", { class: "card health", "aria-label": "Health" },
      el("div", { class: "line" }, this.dot, el("div", { class: "said" }, this.cause, this.fix), this.more, actions), this.list, this.spoken);
    this.at = null;
    this.findings = [];
    this.stats = null;
    this.render();
  }

  /** `at` is when they were found, by the reader's clock. */
  show(at, findings) {
    Object.assign(this, { at, findings });
    this.render();
  }

  /** Whether the node takes writes is known sooner than a checkup says so. */
  showNode(stats) {
    this.stats = stats;
    if (this.at !== null) this.render();
  }

  render() {
    const { at } = this;
    const findings = withWrites(this.findings, this.stats);
    const worst = findings[0];
    const state = STATES[worst?.severity] ?? (at === null ? "" : "good");
    set(this.dot, "class", `dot ${state}`);
    set(this.element, "class", `card health ${state}`);
    this.say(at, STATES[worst?.severity] && worst);
    const others = findings.length - (STATES[worst?.severity] ? 1 : 0);
    setText(this.more, !worst ? "" : others === 0 ? "Details" : STATES[worst.severity] ? `${count(others)} more` : notes(others));
    this.more.style.visibility = worst ? "visible" : "hidden";
    if (!worst) this.toggle(false);
    keyed(this.list, findings.map((finding, place) => ({ finding, place })), ({ place }) => place, makeRow, fillRow);
  }

  say(at, finding) {
    const cause = at === null ? "Looking…" : finding ? sentence(finding, placeOf(finding.where)) : "Nothing is wrong";
    const fix = finding ? capital(finding.advice) : at === null ? "\u00a0" : `Looked at ${clock(at)}`;
    setText(this.cause, cause);
    // A reason may hold numbers that change all the time: only another cause is worth an interruption.
    setText(this.spoken, finding ? `${capital(finding.kind)}: ${placeOf(finding.where)}` : cause);
    set(this.cause, "title", finding && sentence(finding, finding.where));
    setAdvice(this.fix, fix);
    set(this.fix, "title", finding && fix.replaceAll("`", ""));
  }

  toggle(isOpen = this.list.hidden) {
    this.list.hidden = !isOpen;
    set(this.more, "aria-expanded", String(isOpen));
  }
}

function sentence({ kind, reason }, where) {
  return `${capital(kind)}: ${where}. ${capital(reason)}`;
}

/** Where it is in few words: of a log's file the log, as TOPIC/PARTITION. */
function placeOf(where) {
  const [, topic, partition] = /^topics\/(.+)~[0-9a-f]{32}\/(\d+)\//.exec(where) ?? [];
  return topic === undefined ? where : `${topic}/${partition}`;
}

function withWrites(findings, stats) {
  if (stats === null || stats.failure !== null || stats.replica !== null) return findings;
  const others = findings.filter(({ kind, where }) => kind !== REFUSED.kind || where !== REFUSED.where);
  if (stats.refused === null) return others;
  const place = others.findIndex(({ severity }) => severity !== "damage");
  return others.toSpliced(place < 0 ? others.length : place, 0, { ...REFUSED, reason: stats.refused || "switched to read-only" });
}

function notes(number) {
  return number === 1 ? "1 note" : `${count(number)} notes`;
}

function makeRow() {
  const row = el("li");
  row.parts = { pill: el("span"), kind: el("b"), where: el("span", { class: "mono" }), reason: el("p"), fix: el("p", { class: "quiet" }) };
  const { pill, kind, where, reason, fix } = row.parts;
  row.append(pill, el("div", {}, el("p", {}, kind, " ", where), reason, fix));
  return row;
}

function fillRow({ parts }, { finding }) {
  set(parts.pill, "class", `pill ${STATES[finding.severity] ?? ""}`);
  setText(parts.pill, WORDS[finding.severity] ?? finding.severity);
  setText(parts.kind, capital(finding.kind));
  setText(parts.where, finding.where);
  setText(parts.reason, capital(finding.reason));
  setAdvice(parts.fix, capital(finding.advice));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
