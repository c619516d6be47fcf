// Putting a group elsewhere and deleting it, each after a dialog has asked. `done()` is called when it is done.

import { path, send } from "../node/api.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { count, plural } from "../text/format.js";

const ROWS_MAX = 20;
const PLACES = [["latest", "The end"], ["earliest", "The first record there is"], ["place", "A time, or a seqno of one log"]];

export class GroupActions {
  constructor(done) {
    this.done = done;
  }

  async reset({ group, lags, logs }) {
    const known = lags ? Object.keys(lags) : [...new Set(logs.map(({ topic }) => topic))];
    const topics = el("input", { value: known.join(", "), required: true, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
    const to = el("select", {}, PLACES.map(([value, text]) => el("option", { value, text })));
    const place = el("input", { autocomplete: "off", placeholder: "2026-01-31T12:00:00Z", spellcheck: "false" });
    const where = field("Time or seqno", place, "The first record from this time on; or the seqno of the record that is read next, where one log is named, as orders/2.");
    where.hidden = true;
    to.addEventListener("change", () => (where.hidden = to.value !== "place"));
    const preview = el("div", { role: "status" });
    const ask = (dryRun) => send("POST", path("groups", group, "reset"), {
      topics: topics.value.replaceAll(/\s*,\s*/g, ",").trim(), to: to.value === "place" ? place.value.trim() : to.value, dry_run: dryRun,
    });
    const look = async () => {
      preview.replaceChildren(...placesOf((await ask(true)).resets));
      return false;
    };
    const made = await openDialog({
      title: `Reset group ${group}`,
      body: [
        el("p", { text: "Its members read on from the new places. Before the old ones they read records again; behind them, they leave some out." }),
        field("Topics", topics, "Topics, orders/2 for one of their logs, or patterns as orders.*, with commas between them."), field("To", to), where, preview,
      ],
      actions: [{ label: "Preview", kind: "", run: look }, { label: "Reset", kind: "first danger", run: () => ask(false) }],
    });
    if (made === null) return;
    notice(`Reset: group ${group}, ${plural(made.resets.length, "log")}`);
    this.done();
  }

  async remove({ group }) {
    const deleted = await openDialog({
      title: `Delete group ${group}`,
      body: [el("p", { text: "Its places in all logs go with it; the records stay. Who joins a group of this name begins anew." })],
      actions: [{ label: "Delete", kind: "first danger", run: () => send("DELETE", path("groups", group)) }],
    });
    if (deleted === null) return;
    notice(`Deleted: group ${group}`);
    this.done();
  }
}

function placesOf(resets) {
  if (resets.length === 0) return [el("p", { class: "help", text: "These topics have no logs." })];
  const rows = resets.slice(0, ROWS_MAX).map(({ topic, partition, seqno_from: before, seqno }) =>
    el("tr", {}, el("td", { class: "log", text: `${topic}/${partition}` }), el("td", { class: "num", text: before === null ? "–" : count(before) }), el("td", { class: "num", text: count(seqno) })));
  const head = el("tr", {}, [["Log", null], ["From", "num"], ["To", "num"]].map(([text, kind]) => el("th", { scope: "col", class: kind, text })));
  const rest = resets.length - ROWS_MAX;
  return [
    el("div", { class: "scroll" }, el("table", { class: "list places", "aria-label": "Where it would go" }, el("thead", {}, head), el("tbody", {}, rows))),
    rest > 0 && el("p", { class: "help", text: `and ${count(rest)} more` }),
  ].filter(Boolean);
}
