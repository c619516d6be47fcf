// What was published, by its key: of each name the highest number, and how to forget one.

import { PagedTable, fillCell } from "../node/paged_table.js";
import { nodeNow } from "../node/shell.js";
import { el, newId, set, setText } from "../page/dom.js";
import { ago, count, instant, moment } from "../text/format.js";
import { numberWords, readKeys } from "./keys.js";
import { forgetKey } from "./stage_actions.js";

/** The node goes through all names for it. */
const EVERY_MS = 5_000;
const COLUMNS = [
  { label: "Key", name: "name", sort: "name", order: "ascending" },
  { label: "Number", name: "number", isNumber: true, meaning: "The highest that was published under this name" },
  { label: "Records", name: "records", isNumber: true, meaning: "Of that publish" },
  { label: "Published", name: "published", isNumber: true, sort: "published", order: "descending" },
  { label: "Kept", name: "kept", isNumber: true, meaning: "So long a repeat is recognised" },
  { label: "Actions", name: "actions" },
];
const OPEN = "It is published, and records of it are still on their way into their logs.";

export function makeKeys(signal, shown, failed) {
  const ask = async (query) => {
    const { keys, total } = await readKeys(query, signal);
    return { items: keys, total };
  };
  const make = (row) => makeCells(row, () => table.refresh());
  const fill = (row, key) => fillRow(row, key, table.why);
  const none = (prefix) => (prefix ? `No key begins with “${prefix}”.` : "Nothing was published yet.");
  const table = new PagedTable({
    label: "Keys", columns: COLUMNS, sort: "name", keyOf: ({ name }) => name, make, fill, ask, every: EVERY_MS, search: "Search keys", none, shown, signal, failed,
  });
  return table;
}

function makeCells(row, done) {
  const name = el("span", { class: "mono", id: newId("key") });
  const pill = el("span", { class: "pill warn", text: "being published", title: OPEN });
  const forget = el("button", { type: "button", class: "danger", text: "Forget", "aria-describedby": name.id, onclick: () => forgetKey(row.item, done) });
  const [number, records, published, kept] = [el("span"), el("span"), el("span"), el("span")];
  row.parts = { name, pill, forget, number, records, published, kept };
  return [[name, " ", pill], number, records, published, kept, forget];
}

function fillRow({ parts }, key, why) {
  setText(parts.name, key.name);
  set(parts.name, "title", key.name);
  parts.pill.hidden = !key.is_open;
  fillCell(parts.number, numberWords(key), numberWords(key));
  if (key.is_open) fillCell(parts.records, "–", "Not all of them are in their logs", true);
  else fillCell(parts.records, count(key.records));
  fillCell(parts.published, ago(key.published, nodeNow()), instant(key.published));
  if (key.expires === null) fillCell(parts.kept, "forever", null, true);
  else fillCell(parts.kept, `until ${moment(key.expires)}`, instant(key.expires));
  parts.forget.disabled = why !== "";
  set(parts.forget, "title", why || null);
}
