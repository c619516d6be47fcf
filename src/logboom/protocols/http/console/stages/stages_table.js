// The stages of the node: what is in them, whose they are, and how to throw one away.

import { get } from "../node/api.js";
import { PagedTable, fillCell } from "../node/paged_table.js";
import { nodeNow } from "../node/shell.js";
import { copyText } from "../page/clipboard.js";
import { el, newId, set, setText } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { ago, bytes, count, instant, span } from "../text/format.js";
import { visible, visibleRuns } from "../text/value.js";
import { discardStage, shortId } from "./stage_actions.js";

const EVERY_MS = 2_000;
const COLUMNS = [
  { label: "Stage", name: "id" },
  { label: "State", name: "state" },
  { label: "Records", name: "records", isNumber: true },
  { label: "Size", name: "size", isNumber: true, sort: "size", order: "descending" },
  { label: "Logs", name: "logs", meaning: "The first few of those it has records for" },
  { label: "Note", name: "note", meaning: "Whose it is, in the words of whoever opened it" },
  { label: "Touched", name: "touched", isNumber: true, meaning: "When something was staged last", sort: "touched", order: "ascending" },
  { label: "Expires", name: "expires", isNumber: true, meaning: "When it is thrown away, unless it is used before" },
  { label: "Actions", name: "actions" },
];
const STATES = {
  open: ["", "It can be filled, published and discarded."],
  publishing: ["warn", "Its records are on their way into their logs: it goes by itself when they are there."],
  failed: ["bad", "What is in it cannot be relied on: a write or a sync of it failed. Discard it, and stage its records again."],
};

export function makeStages(signal, shown, failed) {
  const ask = async ({ sort, offset, limit }) => {
    const { stages, total } = await get("/stages", { sort, offset, limit }, { signal });
    return { items: stages, total };
  };
  const make = (row) => makeCells(row, () => table.refresh());
  const fill = (row, stage) => fillRow(row, stage, table.why);
  const none = () => "Nothing is staged now.";
  const table = new PagedTable({ label: "Stages", columns: COLUMNS, sort: "touched", keyOf: ({ id }) => id, make, fill, ask, every: EVERY_MS, none, shown, signal, failed });
  return table;
}

function makeCells(row, done) {
  const id = el("button", { type: "button", class: "link mono", id: newId("stage"), onclick: () => copyText(row.item.id, `stage ${row.item.id}`) });
  const discard = el("button", { type: "button", class: "danger", text: "Discard", "aria-describedby": id.id, onclick: () => discardStage(row.item, done) });
  const parts = { id, discard, state: el("span"), note: el("span") };
  for (const name of ["records", "size", "logs", "touched", "expires"]) parts[name] = el("span");
  row.parts = parts;
  return [id, parts.state, parts.records, parts.size, parts.logs, parts.note, parts.touched, parts.expires, discard];
}

function fillRow({ parts }, stage, why) {
  const now = nodeNow();
  const isPublishing = stage.state === "publishing";
  const [kind, meaning] = STATES[stage.state] ?? ["", null];
  setText(parts.id, shortId(stage));
  set(parts.id, "title", `Copy ${stage.id}`);
  fillCell(parts.state, stage.state, meaning);
  set(parts.state, "class", `pill ${kind}`);
  fillContent(parts, stage);
  fillCell(parts.touched, ago(stage.touched, now), `touched ${instant(stage.touched)}, opened ${instant(stage.opened)}`);
  const left = (stage.expires - now) / 1e6;
  if (isPublishing) fillCell(parts.expires, "–", "Not while it is being published", true);
  else fillCell(parts.expires, left < 1 ? "now" : `in ${span(left)}`, instant(stage.expires));
  parts.discard.disabled = why !== "" || isPublishing;
  set(parts.discard, "title", why || (isPublishing ? "It is being published." : null));
}

/** What the node knows of it by now: after a restart a stage is read when it is used first, and has no producer before. */
function fillContent(parts, stage) {
  const isRead = stage.producer_id !== 0;
  const unread = "The node has not read it since it was started";
  if (isRead) fillCell(parts.records, count(stage.records));
  else fillCell(parts.records, "–", unread, true);
  fillCell(parts.size, bytes(stage.size_bytes), `${count(stage.size_bytes)} bytes`);
  const logs = stage.logs.join(", ");
  fillCell(parts.logs, logs || "–", logs || (isRead ? "Nothing is in it yet" : unread), !logs);
  if (parts.note.said === stage.note) return;
  parts.note.said = stage.note;
  parts.note.replaceChildren(...(stage.note ? shownRuns(visibleRuns(stage.note)) : ["–"]));
  set(parts.note, "title", visible(stage.note) || null);
  parts.note.classList.toggle("quiet", !stage.note);
}
