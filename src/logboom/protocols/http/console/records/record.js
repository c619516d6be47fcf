// One record in a dialog: all its columns, and its value as text, JSON or hex, exactly as the bytes are. The topic's setting
// says what is shown first; msgpack is shown as the JSON of it.

import { getBytes, path } from "../node/api.js";
import { copyText } from "../page/clipboard.js";
import { explain, openDialog } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { bytes, count, plural } from "../text/format.js";
import { findFault, format } from "../text/json.js";
import { jsonOfMsgpack } from "../text/msgpack.js";
import { bytesOf, fieldBytes, fieldRuns, hexDigits, localTime, looseTextOf, textOf, visibleRuns } from "../text/value.js";
import { readRecord } from "./record_pages.js";
import { chip } from "./rows.js";
import { hexView, textView, treeView } from "./views.js";

const FIELD_CHARACTERS = 4_000;
const FIELDS_MAX = 200;
const VALUE_TIMEOUT_MS = 300_000;
const FORMATTED_CHARACTERS = 4 * 1_048_576;
const VIEWS = ["Text", "JSON", "Hex"];

export class RecordDialog {
  /** `moved(partition, seqno)` is told of every step, `closed()` of the end. */
  constructor({ topic, moved, closed }) {
    Object.assign(this, { topic, moved });
    this.leaving = new AbortController();
    this.end = 0;
    const step = (label, by) => el("button", { type: "button", text: label, "aria-label": `${label} record`, onclick: () => this.step(by) });
    this.previous = step("Previous", -1);
    this.next = step("Next", 1);
    this.place = el("span", { class: "quiet" });
    this.trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    this.columns = el("dl", { class: "columns-of" });
    this.choices = VIEWS.map((name) => el("button", { type: "button", text: name, "aria-pressed": "false", onclick: () => this.#view(name) }));
    this.size = el("span", { class: "quiet" });
    this.copy = el("button", { type: "button", text: "Copy", onclick: () => this.#copy() });
    this.download = el("a", { class: "button", text: "Download", download: "" });
    this.bar = el("div", { class: "value-bar buttons" }, el("div", { class: "segmented" }, this.choices), this.size, this.copy, this.download);
    this.view = el("div", { class: "value-view" });
    const content = el("div", { class: "record", tabindex: -1, autofocus: true },
      el("div", { class: "about" }, el("div", { class: "buttons steps" }, this.previous, this.next, this.place), this.trouble, this.columns),
      el("div", { class: "value" }, this.bar, this.view));
    openDialog({ title: "Record", body: [content], wide: true }).then(() => {
      this.leaving.abort();
      closed();
    });
    this.dialog = content.closest("dialog");
    this.dialog.classList.add("of-record");
    this.dialog.addEventListener("keydown", (event) => this.#key(event));
  }

  close() {
    this.dialog.close();
  }

  /** Show this record; gives when it is there. */
  async go(partition, seqno) {
    this.at = { partition, seqno };
    this.turn?.abort();
    this.turn = new AbortController();
    const signal = AbortSignal.any([this.turn.signal, this.leaving.signal]);
    setText(this.dialog.querySelector("h2"), `Record ${partition}/${seqno}`);
    this.#steps();
    set(this.view, "aria-busy", "true");
    try {
      const where = path("topics", this.topic.name, "records", seqno, "value");
      const record = await readRecord(this.topic.name, partition, seqno, signal);
      const answer = await getBytes(where, { partition }, { signal, timeout: VALUE_TIMEOUT_MS });
      this.#show(record, answer.status === 204 ? null : answer.bytes, `${where}?partition=${partition}`);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
    if (!signal.aborted) set(this.view, "aria-busy", null);
  }

  step(by) {
    const { first, committed } = this.#log();
    const seqno = Math.max(first, Math.min(committed - 1, this.at.seqno + by));
    if (seqno === this.at.seqno || committed === first) return;
    this.moved(this.at.partition, seqno);
    this.go(this.at.partition, seqno);
  }

  /** What is known of the log, which may be older than the record that is shown. */
  #log() {
    const { first = 0, committed = 0 } = this.topic.info().partitions.find(({ partition }) => partition === this.at.partition) ?? {};
    return { first, committed: Math.max(committed, this.end) };
  }

  #steps() {
    const { first, committed } = this.#log();
    this.previous.disabled = this.at.seqno <= first;
    this.next.disabled = this.at.seqno >= committed - 1 && this.at.seqno >= first;
    setText(this.place, committed > first ? `of seqnos ${count(first)} to ${count(committed - 1)}` : "the log is empty");
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const isElsewhere = event.ctrlKey || event.altKey || event.metaKey || event.shiftKey || event.target.matches("input, select, textarea, pre");
    if (!by || isElsewhere) return;
    event.preventDefault();
    this.step(by);
  }

  #fail(error) {
    const { first, next } = error.body?.data ?? {};
    const { seqno } = this.at;
    const isMissing = error.code === "record-not-found";
    let words = explain(error);
    if (isMissing && seqno < first) words = `Record ${seqno} is gone: the log begins with seqno ${first}.`;
    if (isMissing && seqno >= next) words = `Record ${seqno} is not written yet: the next one is ${next}.`;
    setText(this.trouble, words);
    this.trouble.hidden = false;
    for (const part of [this.columns, this.bar, this.view]) part.hidden = true;
    this.#steps();
  }

  #show(record, value, address) {
    this.trouble.hidden = true;
    this.end = Math.max(this.end, record.seqno + 1);
    for (const part of [this.columns, this.view]) part.hidden = false;
    this.bar.hidden = value === null;
    this.columns.replaceChildren(...columnsOf(this.topic.name, record, value));
    this.#steps();
    if (value === null) return this.view.replaceChildren(el("p", { class: "empty", text: "A tombstone: the record has no value." }));
    this.value = value;
    this.text = textOf(value);
    const said = this.topic.info().settings.value;
    const isJson = this.text !== null && /^\s*[[{"\d\-tfn]/.test(this.text) && findFault(this.text) === null;
    this.json = said === "msgpack" ? jsonOfMsgpack(value) : isJson ? this.text : null;
    this.choices[VIEWS.indexOf("JSON")].disabled = this.json === null;
    setText(this.size, bytes(value.length));
    set(this.download, "href", address);
    this.#view(this.#firstView(said));
  }

  #firstView(said) {
    if (said === "bytes") return "Hex";
    const isTree = this.json !== null && (said === "json" || said === "msgpack" || /^\s*[[{]/.test(this.json));
    return isTree && said !== "text" ? "JSON" : this.text !== null ? "Text" : "Hex";
  }

  #view(name) {
    if (this.value === undefined) return; // it is on its way
    this.shown = name;
    for (const choice of this.choices) set(choice, "aria-pressed", String(choice.textContent === name));
    if (!this.value.length) this.view.replaceChildren(el("p", { class: "empty", text: "The value is empty: no bytes at all." }));
    else this.view.replaceChildren(name === "JSON" ? treeView(this.json) : name === "Text" ? textView(this.value) : hexView(this.value));
  }

  async #copy() {
    if (this.shown === "Hex") return copyText(hexDigits(this.value), `${plural(this.value.length, "byte")} as hex`);
    if (this.shown === "JSON") return copyText(this.json.length > FORMATTED_CHARACTERS ? this.json : format(this.json), `JSON of ${bytes(this.value.length)}`);
    const what = this.text === null ? `${bytes(this.value.length)}, with � for what is no text` : `text of ${bytes(this.value.length)}`;
    return copyText(this.text ?? looseTextOf(this.value), what);
  }
}

function columnsOf(topic, record, value) {
  const row = (name, ...content) => [el("dt", { text: name }), el("dd", {}, content)];
  const none = el("span", { class: "quiet", text: "none" });
  const utc = typeof record.timestamp === "string" ? el("span", { class: "quiet line", text: record.timestamp }) : null;
  const tags = record.tags.slice(0, FIELDS_MAX).map(chip);
  const headers = record.headers.slice(0, FIELDS_MAX).map(([name, content]) =>
    el("div", { class: "header" }, el("span", { class: "name" }, shownRuns(visibleRuns(name.slice(0, FIELD_CHARACTERS)))), ": ", field(content)));
  const left = (all) => all.length > FIELDS_MAX && el("span", { class: "quiet", text: ` and ${count(all.length - FIELDS_MAX)} more` });
  return [
    row("Topic", topic),
    row("Partition", String(record.partition)),
    row("Seqno", String(record.seqno)),
    row("Timestamp", localTime(record.timestamp), utc),
    row("Key", record.key === null ? none.cloneNode(true) : field(record.key)),
    row("Channel", record.channel === null ? none.cloneNode(true) : field(record.channel)),
    row("Tags", tags.length ? [tags, left(record.tags)] : none.cloneNode(true)),
    row("Headers", headers.length ? [headers, left(record.headers)] : none.cloneNode(true)),
    row("Size", sizes(record, value)),
  ].flat();
}

/** A key or the like; as hex too where it is no text. */
function field(content) {
  if (content === "") return el("span", { class: "quiet", text: "empty" });
  const shown = el("span", { class: "field-text" }, shownRuns(fieldRuns(content, FIELD_CHARACTERS)));
  if (typeof content === "string") return shown;
  const digits = hexDigits(fieldBytes(content).subarray(0, FIELD_CHARACTERS / 2));
  return [shown, el("span", { class: "quiet mono", text: ` hex ${digits}` })];
}

function sizes(record, value) {
  const key = record.key === null ? null : `key ${bytes(fieldBytes(record.key).length)}`;
  const held = record.headers.reduce((sum, [name, content]) => sum + bytesOf(name).length + fieldBytes(content).length, 0);
  const parts = [value === null ? "no value" : `value ${bytes(value.length)}`, key, held ? `headers ${bytes(held)}` : null];
  return parts.filter(Boolean).map((text) => el("span", { class: "line", text }));
}
