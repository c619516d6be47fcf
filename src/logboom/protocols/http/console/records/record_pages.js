// Pages of records as the list needs them: everything but the value, of which the beginning and the size are kept.

import { getBytes, path } from "../node/api.js";
import { entriesOf } from "../text/json.js";
import { bytesOf, cut, fromBase64, looseTextOf, PREVIEW_CHARACTERS, runsOf, visibleRuns } from "../text/value.js";

const KEPT_CHARACTERS = 1_000;
const KEPT_TAGS = 50;
/** Of JSON's longest escape, and the quotes. */
const SOURCE_CHARACTERS = PREVIEW_CHARACTERS * 6 + 2;
const BYTES = '{"base64":"';
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

/** A page as the API gives it, with `size` in bytes, and records as `recordOf` makes them, without what is too long for a list. */
export async function readPage(topic, query, signal) {
  const { bytes } = await getBytes(path("topics", topic, "records"), query, { signal });
  return { ...pageOf(looseTextOf(bytes)), size: bytes.length };
}

export function pageOf(text) {
  const page = {};
  let start = -1;
  for (const entry of entriesOf(text, 0).entries) {
    if (entry.name === '"records"') start = entry.start;
    else page[JSON.parse(entry.name)] = JSON.parse(text.slice(entry.start, entry.end));
  }
  page.records = entriesOf(text, start).entries.map((entry) => shorten(recordOf(text, entry.start, page.partition)));
  return page;
}

/** One record, whole but for its value. */
export async function readRecord(topic, partition, seqno, signal) {
  const { bytes } = await getBytes(path("topics", topic, "records", seqno), { partition }, { signal });
  return recordOf(looseTextOf(bytes), 0, partition);
}

/** The record whose JSON begins here: its fields, and of the value {kind, runs, size}. */
export function recordOf(text, start, partition) {
  const record = { partition };
  for (const entry of entriesOf(text, start).entries) {
    if (entry.name === '"value"') record.value = valueOf(text, entry.start, entry.end);
    else record[JSON.parse(entry.name)] = JSON.parse(text.slice(entry.start, entry.end));
  }
  return record;
}

/** `kind` is none, text, bytes or json. */
function valueOf(text, start, end) {
  if (text.startsWith("null", start)) return { kind: "none", runs: [], size: 0 };
  if (text[start] === '"') {
    const runs = visibleRuns(previewOfString(text, start, end));
    return { kind: "text", runs, size: bytesOf(JSON.parse(text.slice(start, end))).length };
  }
  const base64 = base64Of(text, start, end);
  if (base64 !== null) return previewOfBytes(base64);
  // A slice of a string keeps all of it in memory: this makes it one of its own.
  const begin = JSON.parse(JSON.stringify(cut(text.slice(start, Math.min(end, start + PREVIEW_CHARACTERS + 1)))));
  return { kind: "json", runs: visibleRuns(begin), size: bytesOf(text.slice(start, end)).length };
}

/** Of bytes, where the node has put them so; null for other JSON that begins like it. */
function base64Of(text, start, end) {
  if (!text.startsWith(BYTES, start) || !text.startsWith('"}', end - 2)) return null;
  const source = text.slice(start + BYTES.length, end - 2);
  return source.length % 4 === 0 && BASE64.test(source) ? source : null;
}

function previewOfString(text, start, end) {
  if (end - start <= SOURCE_CHARACTERS) return cut(JSON.parse(text.slice(start, end)));
  for (let length = SOURCE_CHARACTERS; ; length -= 1) {
    try {
      return cut(`${JSON.parse(`${text.slice(start, start + length)}"`)}…`);
    } catch {
      continue; // it was cut within an escape
    }
  }
}

function previewOfBytes(base64) {
  const bytes = fromBase64(base64.slice(0, 4 * Math.ceil(PREVIEW_CHARACTERS / 3)));
  const size = (base64.length / 4) * 3 - (base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0);
  return { kind: "bytes", runs: runsOf(bytes), size };
}

function shorten(record) {
  const { key, channel, tags } = record;
  record.key = typeof key === "string" ? cut(key, KEPT_CHARACTERS) : key && { base64: key.base64.slice(0, KEPT_CHARACTERS) };
  record.channel = channel && cut(channel, KEPT_CHARACTERS);
  record.tags = tags.slice(0, KEPT_TAGS).map((tag) => cut(tag, KEPT_CHARACTERS));
  record.moreTags = Math.max(0, tags.length - KEPT_TAGS);
  delete record.headers;
  return record;
}

/** Lists of records, each in the order of its log, as one: by time, as far as their own order allows. */
export function mergeByTime(lists) {
  const places = lists.map(() => 0);
  const merged = [];
  for (;;) {
    let best = -1;
    for (let each = 0; each < lists.length; each += 1) {
      const record = lists[each][places[each]];
      if (record && (best < 0 || isBefore(record, lists[best][places[best]]))) best = each;
    }
    if (best < 0) return merged;
    merged.push(lists[best][places[best]]);
    places[best] += 1;
  }
}

/** Times are all of one form but for those beyond the calendar, which are numbers. */
function isBefore(one, other) {
  if (typeof one.timestamp === typeof other.timestamp) return one.timestamp < other.timestamp;
  return Number.isFinite(one.timestamp) ? one.timestamp < 0 : other.timestamp > 0;
}
