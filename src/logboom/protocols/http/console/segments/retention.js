// Which segment of a log goes next, and why: in words, as the topic's retention says it.
//
// The rules are the node's: whole segments, oldest first, never the one that takes appends; a limit says what stays at
// least, and any limit lets a segment go.

import { isInternal } from "../node/permission.js";
import { lastStats } from "../node/shell.js";
import { bytes, count, plural, span } from "../text/format.js";
import { BYTES, DURATION, writeAmount } from "../text/units.js";
import { seqnosOf } from "./segment_strip.js";

/** One or two sentences. `segments` begin with the oldest; `log` is the partition. */
export function foretell(info, log, segments, now) {
  const { retention, hook } = info.settings;
  if (isInternal(info.name)) return "The node drops what it needs no more by itself.";
  if (lastStats()?.replica) return "A replica drops nothing by its own retention while it copies.";
  const [oldest, following] = segments;
  if (!oldest || oldest.first_seqno > (log.first_stored ?? log.first)) return limits(retention);
  if (!following || !oldest.sealed) return `${limits(retention)} ${none(retention)}`.trim();
  const ways = reasons(retention, log, oldest, following, now);
  if (ways.length === 0) return limits(retention);
  const archived = retention.after === "archive" ? ", once it is archived" : "";
  const after = hook.delete ? `${archived}, after the delete hook has succeeded` : archived;
  const due = ways.find(({ due: isDue }) => isDue);
  const what = `The oldest segment (${seqnosOf(oldest, oldest)}, ${bytes(oldest.size_bytes)})`;
  if (due) return `${what} goes next${after}: ${due.why}.`;
  return `${what} goes ${ways.map(({ when }) => when).join(", or ")}${after}.`;
}

function reasons(retention, log, oldest, following, now) {
  const ways = [];
  if (following.first_seqno <= log.floor) ways.push({ due: true, why: "all of it was trimmed" });
  if (retention.bytes !== null) {
    const missing = retention.bytes - (log.size_bytes - oldest.size_bytes);
    const limit = `retention.bytes is ${writeAmount(retention.bytes, BYTES)}`;
    ways.push({ due: missing <= 0, why: limit, when: `when ${bytes(missing)} more have been written (${limit})` });
  }
  if (retention.records !== null) {
    const missing = retention.records - (log.committed - following.first_seqno);
    const limit = `retention.records is ${count(retention.records)}`;
    ways.push({ due: missing <= 0, why: limit, when: `when ${plural(missing, "more record is", "more records are")} written (${limit})` });
  }
  if (retention.age_ms !== null && oldest.newest !== null) {
    const rest = oldest.newest + retention.age_ms * 1000 - now;
    const limit = `retention.age_ms is ${writeAmount(retention.age_ms, DURATION)}`;
    ways.push({ due: rest <= 0, why: limit, when: `in ${span(rest / 1e6)} (${limit})` });
  }
  return ways;
}

function none(retention) {
  if (isForEver(retention)) return "";
  const closed = retention.age_ms === null ? "" : " It is closed when all of it is too old.";
  return `The segment that takes appends never goes, and there is no other.${closed}`;
}

function isForEver({ bytes: size, age_ms: age, records, hard_bytes: hard }) {
  return [size, age, records, hard].every((limit) => limit === null);
}

/** What stays at least. */
function limits(retention) {
  if (isForEver(retention)) return "Nothing is ever dropped: no retention is set.";
  const kept = [
    retention.bytes !== null && writeAmount(retention.bytes, BYTES),
    retention.records !== null && `${count(retention.records)} records`,
    retention.age_ms !== null && `what came within ${writeAmount(retention.age_ms, DURATION)}`,
  ].filter(Boolean);
  const hard = retention.hard_bytes === null ? "" : `Beyond ${writeAmount(retention.hard_bytes, BYTES)} the oldest segments go in any case.`;
  return `${kept.length ? `Each partition keeps at least ${kept.join(", or ")}.` : ""} ${hard}`.trim();
}
