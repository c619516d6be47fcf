// The form that says which records to show, and what people write for a place in a log.

import { field } from "../page/dialog.js";
import { el, newId, set, setText } from "../page/dom.js";
import { localTime } from "../text/value.js";

const UNITS = { s: 1, sec: 1, second: 1, m: 60, min: 60, minute: 60, h: 3_600, hour: 3_600, d: 86_400, day: 86_400, w: 604_800, week: 604_800 };
const DAY_MS = 86_400_000;
const BOOKMARK = /^1[A-Za-z0-9_-]{48}$/;
const DATE = /^(\d{4})-(\d\d?)-(\d\d?)(?:(?:T|\s+)(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|[+-]\d\d:?\d\d)?$/i;
const CLOCK = /^(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?$/;
const AGO = /^(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+ago)?$/i;
const PLACES = /^\d+\/\d+(?:[\s,]+\d+\/\d+)*$/;
const HELP = "a seqno as 1200, a time as 14:03, 2026-01-31 14:03 or 10 min ago, earliest, latest, PARTITION/SEQNO, or a bookmark";

/**
 * What somebody wrote for a place, as the API has it: a seqno, earliest, a time with its zone, a bookmark, or
 * PARTITION/SEQNO for each log. Null is the end of the log. Throws what can be written instead.
 */
export function parsePlace(written, now = new Date()) {
  const text = written.trim();
  if (/^(latest|now|end|live)?$/i.test(text)) return null;
  if (/^(earliest|first|start|beginning)$/i.test(text)) return "earliest";
  if (/^\d{1,3}([,_ ]\d{3})+$/.test(text)) return String(BigInt(text.replace(/[,_ ]/g, "")));
  if (/^\d{1,18}$/.test(text)) return String(BigInt(text));
  if (BOOKMARK.test(text)) return text;
  if (PLACES.test(text)) return text.split(/[\s,]+/).join(" ");
  const time = parseDate(text) ?? parseClock(text, now) ?? parseAgo(text, now);
  if (time === null) throw new Error(`“${text.slice(0, 60)}” is no place in a log. Write ${HELP}.`);
  return time;
}

/** RFC 3339 in UTC, of a Date and digits behind the second. */
function utc(date, fraction = "") {
  return `${date.toISOString().slice(0, 19)}.${fraction.padEnd(6, "0").slice(0, 6)}Z`;
}

function parseDate(text) {
  const found = DATE.exec(text);
  if (!found) return null;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const date = new Date(2000, 0, 1);
  date.setFullYear(year, month - 1, day);
  date.setHours(hour, minute, second, 0);
  if (date.getMonth() !== month - 1 || hour > 23 || minute > 59 || second > 59) return null;
  const [fraction, zone] = [found[7], found[8]];
  if (!zone) return utc(date, fraction);
  const [, sign, hours, minutes] = /^([+-])(\d\d):?(\d\d)$/.exec(zone) ?? [null, "+", 0, 0];
  const away = (Number(hours) * 60 + Number(minutes)) * (sign === "-" ? -60_000 : 60_000);
  const there = new Date(0);
  there.setUTCFullYear(year, month - 1, day);
  there.setUTCHours(hour, minute, second, 0);
  return utc(new Date(there.getTime() - away), fraction);
}

/** A time of today; of yesterday where it is still to come. */
function parseClock(text, now) {
  const found = CLOCK.exec(text);
  if (!found) return null;
  const [hour, minute, second] = found.slice(1, 4).map((part) => Number(part ?? 0));
  if (hour > 23 || minute > 59 || second > 59) return null;
  const date = new Date(now);
  date.setHours(hour, minute, second, 0);
  if (date > now) date.setDate(date.getDate() - 1);
  return utc(date, found[4]);
}

function parseAgo(text, now) {
  const [, number, unit] = AGO.exec(text) ?? [];
  const seconds = UNITS[unit?.toLowerCase()];
  if (!seconds) return null;
  const then = new Date(now.getTime() - Number(number) * seconds * 1000);
  return then.getTime() > -60_000 * DAY_MS ? utc(then, String(then.getMilliseconds()).padStart(3, "0")) : null;
}

/** A place as it stands in the address, for the form. */
export function showPlace(from) {
  if (!from) return "";
  return DATE.test(from) ? localTime(from).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") : from;
}

export class Finder {
  /** `find({partition, from, tag, channel, key})` is called with what to look for, all null where it says nothing. */
  constructor({ partitions, find }) {
    this.find = find;
    const choices = [el("option", { value: "", text: "All" }), ...partitions.map((number) => el("option", { value: number, text: String(number) }))];
    const text = (name, hint) => el("input", { type: "text", name, placeholder: hint, autocomplete: "off", spellcheck: "false", maxlength: 2_000 });
    this.controls = {
      partition: el("select", { name: "partition" }, choices),
      from: text("from", "live, 1200, 14:03, 10 min ago"),
      tag: text("tag", "any"),
      channel: text("channel", "any, or site/+/temp"),
      key: text("key", "any"),
    };
    set(this.controls.from, "data-search", true);
    set(this.controls.from, "title", HELP);
    set(this.controls.channel, "title", "+ stands for one level, # at the end for the rest, * at the end for anything");
    this.trouble = el("p", { id: newId("find"), class: "trouble", role: "alert", hidden: true });
    const labels = { partition: "Partition", from: "From", tag: "Tag", channel: "Channel", key: "Key" };
    const fields = Object.entries(labels).map(([name, label]) => {
      const made = field(label, this.controls[name]);
      made.classList.add(`of-${name}`);
      return made;
    });
    this.element = el("form", { class: "card finder", role: "search", "aria-label": "Find records", onsubmit: (event) => this.#submit(event) },
      fields, el("div", { class: "buttons" }, el("button", { type: "submit", class: "first", text: "Find" }),
        el("button", { type: "button", text: "Clear", onclick: () => this.find(nothing()) })), this.trouble);
  }

  show(wanted) {
    this.trouble.hidden = true;
    for (const name of ["aria-invalid", "aria-describedby"]) set(this.controls.from, name, null);
    for (const [name, control] of Object.entries(this.controls)) {
      const value = name === "from" ? showPlace(wanted.from) : String(wanted[name] ?? "");
      if (control.value !== value) control.value = value;
    }
  }

  #submit(event) {
    event.preventDefault();
    try {
      const wanted = nothing();
      for (const name of ["tag", "channel", "key"]) wanted[name] = this.controls[name].value || null;
      wanted.partition = this.controls.partition.value === "" ? null : Number(this.controls.partition.value);
      wanted.from = parsePlace(this.controls.from.value);
      this.find(wanted);
    } catch (error) {
      this.complain(error.message);
      set(this.controls.from, "aria-invalid", "true");
      set(this.controls.from, "aria-describedby", this.trouble.id);
      this.controls.from.focus();
    }
  }

  complain(words) {
    setText(this.trouble, words);
    this.trouble.hidden = false;
  }
}

export function nothing() {
  return { partition: null, from: null, tag: null, channel: null, key: null };
}
