// Tokens: what machines show instead of a name and a password. A new one is shown once.

import { path, send } from "../node/api.js";
import { identity } from "../node/caller.js";
import { fillCell } from "../node/paged_table.js";
import { nodeNow } from "../node/shell.js";
import { copyText } from "../page/clipboard.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el, newId, setText } from "../page/dom.js";
import { ago, instant, moment } from "../text/format.js";
import { visible } from "../text/value.js";
import { makeList, namesIn, namesInput } from "./lists.js";
import { fillNames } from "./users.js";

const DAY_MS = 86_400_000;
const COLUMNS = [
  { label: "Token", name: "id" },
  { label: "User", name: "user" },
  { label: "Note", name: "note" },
  { label: "Only for", name: "scope", meaning: "Rights and topics: no more than these of its user's" },
  { label: "Used", name: "used", isNumber: true, meaning: "Last, since the node was started" },
  { label: "Expires", name: "expires", isNumber: true },
  { label: "Actions", name: "actions" },
];

export function makeTokens(signal, shown, failed) {
  const make = (row) => makeCells(row, () => table.refresh());
  const none = (prefix) => (prefix ? `No user whose name begins with “${prefix}” has a token.` : "There are no tokens.");
  const table = makeList({
    where: "/access/tokens", name: "tokens", textOf: ({ user }) => user, action: { label: "New token", run: newToken },
    label: "Tokens", columns: COLUMNS, keyOf: ({ id }) => id, make, fill: fillRow, search: "Search tokens by user", none, shown, signal, failed,
  });
  return table;
}

function makeCells(row, done) {
  const id = el("span", { class: "mono", id: newId("token") });
  const revoke = el("button", { type: "button", class: "danger", text: "Revoke", "aria-describedby": id.id, onclick: () => revokeToken(row.item, done) });
  const parts = { id };
  for (const name of ["user", "note", "scope", "used", "expires"]) parts[name] = el("span");
  row.parts = parts;
  return [id, parts.user, parts.note, parts.scope, parts.used, parts.expires, revoke];
}

function fillRow({ parts }, token) {
  const now = nodeNow();
  setText(parts.id, token.id);
  fillCell(parts.user, token.user, token.user);
  fillCell(parts.note, visible(token.note) || "–", visible(token.note) || null, !token.note);
  fillNames(parts.scope, [...token.rights, ...token.topics], "all");
  if (token.last_used === null) fillCell(parts.used, "–", "Not since the node was started", true);
  else fillCell(parts.used, ago(token.last_used, now), instant(token.last_used));
  if (token.expires === null) fillCell(parts.expires, "never", null, true);
  else fillCell(parts.expires, token.expires > now ? moment(token.expires) : "expired", instant(token.expires));
}

async function newToken(done) {
  const self = (await identity)?.caller;
  const user = el("input", { required: true, maxlength: 128, value: self?.by === "password" ? self.principal : "", autocomplete: "off", autocapitalize: "none", spellcheck: "false", autofocus: true });
  const note = el("input", { maxlength: 200, autocomplete: "off", placeholder: "nightly import" });
  const days = el("input", { type: "number", min: 1, max: 3660, step: 1, inputmode: "numeric" });
  const [rights, topics] = [namesInput([], { placeholder: "read, write" }), namesInput([], { placeholder: "orders*" })];
  const run = () => send("POST", "/access/tokens", {
    user: user.value.trim(), note: note.value, rights: namesIn(rights.value), topics: namesIn(topics.value),
    ...(days.value && { lasts_ms: Number(days.value) * DAY_MS }),
  });
  const made = await openDialog({
    title: "New token",
    body: [
      field("User", user, "The token can do what this user can, and no more."), field("Note", note, "What it is for."),
      field("Days", days, "How long it counts. Empty: until it is revoked."), field("Rights", rights, "Only these of the user's. Empty: all."),
      field("Topics", topics, "Only these of the user's: names, or the beginnings of names with * at the end. Empty: all."),
    ],
    actions: [{ label: "Make", run }],
  });
  if (!made) return;
  done();
  await openDialog({
    title: `Token ${made.info.id}`,
    body: [
      el("p", { text: "Copy it now: it is shown this once, and the node itself does not know it afterwards." }),
      el("pre", { class: "secret", text: made.token }),
      el("div", { class: "buttons" }, el("button", { type: "button", class: "first", text: "Copy", onclick: () => copyText(made.token, `token ${made.info.id}`) })),
    ],
  });
}

async function revokeToken({ id, user, note }, done) {
  const revoked = await openDialog({
    title: `Revoke token ${id}`,
    body: [el("p", { text: `Whoever uses it (${[user, visible(note)].filter(Boolean).join(": ")}) is refused from now on.` })],
    actions: [{ label: "Revoke", kind: "first danger", run: () => send("DELETE", path("access", "tokens", id)) }],
  });
  if (revoked === null) return;
  notice(`Revoked: token ${id}`);
  done();
}
