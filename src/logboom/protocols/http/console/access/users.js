// The users of the node.

import { fillCell } from "../node/paged_table.js";
import { nodeNow } from "../node/shell.js";
import { el, newId, set, setText } from "../page/dom.js";
import { ago, instant } from "../text/format.js";
import { makeList } from "./lists.js";
import { addUser, changeUser, removeUser } from "./user_actions.js";

const COLUMNS = [
  { label: "User", name: "name" },
  { label: "Roles", name: "roles" },
  { label: "Groups", name: "groups" },
  { label: "Password", name: "password", isNumber: true, meaning: "When it was set" },
  { label: "Actions", name: "actions" },
];

export function makeUsers(signal, shown, failed) {
  const make = (row) => makeCells(row, () => table.refresh());
  const none = (prefix) => (prefix ? `No user's name begins with “${prefix}”.` : "There are no users.");
  const table = makeList({
    where: "/access/users", name: "users", textOf: ({ name }) => name, action: { label: "Add a user", run: addUser },
    label: "Users", columns: COLUMNS, keyOf: ({ name }) => name, make, fill: fillRow, search: "Search users", none, shown, signal, failed,
  });
  return table;
}

function makeCells(row, done) {
  const name = el("span", { class: "mono", id: newId("user") });
  const pill = el("span", { class: "pill warn", text: "disabled", title: "May do nothing until somebody enables the user again." });
  const change = el("button", { type: "button", text: "Change", "aria-describedby": name.id, onclick: () => changeUser(row.item, done) });
  const remove = el("button", { type: "button", class: "danger", text: "Remove", "aria-describedby": name.id, onclick: () => removeUser(row.item, done) });
  const [roles, groups, password] = [el("span"), el("span"), el("span")];
  row.parts = { name, pill, roles, groups, password };
  return [[name, " ", pill], roles, groups, password, el("span", { class: "buttons" }, change, remove)];
}

function fillRow({ parts }, user) {
  setText(parts.name, user.name);
  set(parts.name, "title", user.name);
  parts.pill.hidden = user.enabled;
  fillNames(parts.roles, user.roles);
  fillNames(parts.groups, user.groups);
  if (user.mechanisms.length) fillCell(parts.password, ago(user.changed, nodeNow()), `set ${instant(user.changed)}: ${user.mechanisms.join(", ")}`);
  else fillCell(parts.password, "none", "Signs in with tokens or a certificate", true);
}

export function fillNames(cell, names, nothing = "–") {
  fillCell(cell, names.join(", ") || nothing, names.join(", ") || null, !names.length);
}
