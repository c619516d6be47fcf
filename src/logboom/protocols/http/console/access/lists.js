// A list that the node gives whole, as a table with pages; and names in a text field.

import { get } from "../node/api.js";
import { PagedTable } from "../node/paged_table.js";
import { el } from "../page/dom.js";

const EVERY_MS = 5_000;

/**
 * A PagedTable of what `where` lists under `name`. `textOf(item)` is what a search begins; `action` is {label, run} of the
 * button above it, where `run(done)` may change the list.
 */
export function makeList({ where, name, textOf, action, ...options }) {
  const ask = async ({ prefix, offset, limit }) => {
    const found = (await get(where, {}, { signal: options.signal }))[name].filter((item) => textOf(item).startsWith(prefix));
    return { items: found.slice(offset, offset + limit), total: found.length };
  };
  const table = new PagedTable({ every: EVERY_MS, sort: null, ask, ...options });
  table.element.querySelector("header").append(el("button", { type: "button", class: "end", text: action.label, onclick: () => action.run(() => table.refresh()) }));
  return table;
}

/** "a, b" as a list. */
export function namesIn(text) {
  return text.split(",").map((name) => name.trim()).filter(Boolean);
}

/** A text field for names with commas between them. */
export function namesInput(names = [], more = {}) {
  return el("input", { value: names.join(", "), autocomplete: "off", autocapitalize: "none", spellcheck: "false", ...more });
}

export function select(choices, chosen) {
  const control = el("select", {}, choices.map((choice) => el("option", { value: choice, text: choice })));
  control.value = chosen ?? choices[0];
  return control;
}
