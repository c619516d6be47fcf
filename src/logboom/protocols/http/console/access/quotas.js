// Quotas: how much users and groups may take, and what they take now.

import { path, send } from "../node/api.js";
import { fillCell } from "../node/paged_table.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el, newId } from "../page/dom.js";
import { bytes, count, duration } from "../text/format.js";
import { makeList, namesInput } from "./lists.js";

const LIMITS = {
  bytes_in: "Bytes in, per second", bytes_out: "Bytes out, per second", records_in: "Records in, per second", records_out: "Records out, per second",
  requests: "Requests, per second", connections: "Connections", topics: "Topics made",
};
const COUNTS = ["connections", "topics"];
const COLUMNS = [
  { label: "Quota of", name: "who" },
  { label: "Limits", name: "limits", meaning: "What is in use now, and what is allowed" },
  { label: "Waited", name: "waited", isNumber: true, meaning: "How long callers have waited for it since the node was started" },
  { label: "Actions", name: "actions" },
];

export function makeQuotas(signal, shown, failed) {
  const make = (row) => makeCells(row, () => table.refresh());
  const none = (prefix) => (prefix ? `No quota is for “${prefix}”.` : "There are no quotas: everybody may take as much as the node gives.");
  const table = makeList({
    where: "/access/quotas", name: "quotas", textOf: ({ who }) => who, action: { label: "Set a quota", run: (done) => setQuota(null, done) },
    label: "Quotas", columns: COLUMNS, keyOf: ({ who }) => who, make, fill: fillRow, search: "Search quotas by whom they bind", none, shown, signal, failed,
  });
  return table;
}

function makeCells(row, done) {
  const who = el("span", { class: "mono", id: newId("quota") });
  const pill = el("span", { class: "pill warn", text: "waits", title: "Whoever it binds has taken more than it gives, and waits." });
  const change = el("button", { type: "button", text: "Change", "aria-describedby": who.id, onclick: () => setQuota(row.item, done) });
  const remove = el("button", { type: "button", class: "danger", text: "Remove", "aria-describedby": who.id, onclick: () => removeQuota(row.item, done) });
  row.parts = { who, pill, limits: el("span"), waited: el("span") };
  return [[who, " ", pill], row.parts.limits, row.parts.waited, el("span", { class: "buttons" }, change, remove)];
}

function fillRow({ parts }, usage) {
  const limits = Object.keys(LIMITS).filter((name) => name in usage.quota).map((name) => limitWords(name, usage));
  fillCell(parts.who, usage.who, usage.who);
  parts.pill.hidden = !usage.rest_s;
  fillCell(parts.limits, limits.join(", ") || "unlimited", limits.join("\n") || "Not even the quota of * binds this user", !limits.length);
  fillCell(parts.waited, usage.throttled_s ? duration(usage.throttled_s) : "–", usage.rest_s ? `Waits ${duration(usage.rest_s)} now` : null, !usage.throttled_s);
}

function limitWords(name, { quota, used }) {
  const show = (value) => (name.startsWith("bytes") ? bytes(value) : count(Math.round(value)));
  const now = name in used ? `${show(used[name])} of ` : "";
  return `${name.replace("_", " ")} ${now}${show(quota[name])}${COUNTS.includes(name) ? "" : "/s"}`;
}

/** All of it: what is left empty is not limited. */
async function setQuota(usage, done) {
  const who = namesInput([], { required: true, maxlength: 140, autofocus: true });
  const inputs = Object.keys(LIMITS).map((name) => el("input", {
    type: "number", min: COUNTS.includes(name) ? 0 : 1, max: 2 ** 50, step: 1, inputmode: "numeric", value: usage?.quota[name] ?? "",
  }));
  const run = () => {
    const given = Object.keys(LIMITS).map((name, number) => [name, inputs[number].value]).filter(([, value]) => value);
    return send("PUT", path("access", "quotas", usage?.who ?? who.value.trim()), Object.fromEntries(given.map(([name, value]) => [name, Number(value)])));
  };
  const isDone = await openDialog({
    title: usage ? `Quota of ${usage.who}` : "Set a quota",
    body: [
      !usage && field("Who", who, "A user, group:NAME for all its members together, * for every user who has none, or anonymous."),
      ...Object.values(LIMITS).map((label, number) => field(label, inputs[number])),
      el("p", { class: "help", text: "Empty is not limited. Whoever takes more than a rate waits; one connection or topic too many is refused. It counts at once." }),
    ],
    actions: [{ label: usage ? "Change" : "Set", run }],
  });
  if (isDone !== null) done();
}

async function removeQuota({ who }, done) {
  const removed = await openDialog({
    title: `Remove the quota of ${who}`,
    body: [el("p", { text: "Whoever waits because of it goes on at once." })],
    actions: [{ label: "Remove", kind: "first danger", run: () => send("DELETE", path("access", "quotas", who)) }],
  });
  if (removed === null) return;
  notice(`Removed: the quota of ${who}`);
  done();
}
