// Rules: who may, or may not, do what to which objects; and roles, which stand for several users in them.

import { path, send } from "../node/api.js";
import { fillCell } from "../node/paged_table.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el, newId, set, setText } from "../page/dom.js";
import { makeList, namesIn, namesInput, select } from "./lists.js";
import { fillNames } from "./users.js";

export const RIGHTS = ["read", "write", "create", "configure", "delete", "describe", "manage"];
export const KINDS = ["topic", "cursor", "group", "transaction", "pipeline", "user", "node", "channel", "tag"];
const RULES = [
  { label: "Number", name: "number" },
  { label: "Rule", name: "effect", meaning: "What denies wins over what allows" },
  { label: "Who", name: "who" },
  { label: "Rights", name: "rights" },
  { label: "To", name: "what" },
  { label: "Actions", name: "actions" },
];
const ROLES = [{ label: "Role", name: "name" }, { label: "Members", name: "members" }, { label: "Actions", name: "actions" }];

export function makeRules(signal, shown, failed) {
  const make = (row) => makeRule(row, () => table.refresh());
  const none = (prefix) => (prefix ? `No rule is for “${prefix}”.` : "There are no rules: besides those with the role admin nobody may do anything, unless the node lets strangers do everything.");
  const table = makeList({
    where: "/access/rules", name: "rules", textOf: ({ rule }) => rule.who, action: { label: "Add a rule", run: addRule },
    label: "Rules", columns: RULES, keyOf: ({ number }) => number, make, fill: fillRule, search: "Search rules by whom they are for", none, shown, signal, failed,
  });
  return table;
}

function makeRule(row, done) {
  const number = el("span", { id: newId("rule") });
  const remove = el("button", { type: "button", class: "danger", text: "Remove", "aria-describedby": number.id, onclick: () => removeRule(row.item, done) });
  row.parts = { number, effect: el("span"), who: el("span", { class: "mono" }), rights: el("span"), what: el("span") };
  return [...Object.values(row.parts), remove];
}

function fillRule({ parts }, { number, rule }) {
  const name = rule.name ?? "*";
  setText(parts.number, String(number));
  setText(parts.effect, rule.effect);
  set(parts.effect, "class", `pill ${rule.effect === "deny" ? "bad" : "good"}`);
  fillCell(parts.who, rule.who, rule.who);
  fillNames(parts.rights, rule.rights);
  fillCell(parts.what, `${rule.kind} ${name}`, `${rule.kind} ${name}`);
}

async function addRule(done) {
  const effect = select(["allow", "deny"]);
  const who = namesInput([], { required: true, maxlength: 140, autofocus: true });
  const rights = RIGHTS.map((right) => el("input", { type: "checkbox", value: right, checked: right === "read" }));
  const kind = select([...KINDS, "all"]);
  const name = el("input", { value: "*", required: true, maxlength: 1024, autocomplete: "off", autocapitalize: "none", spellcheck: "false" });
  const run = () => send("POST", "/access/rules", {
    effect: effect.value, who: who.value.trim(), rights: rights.filter(({ checked }) => checked).map(({ value }) => value), kind: kind.value, name: name.value.trim(),
  });
  const added = await openDialog({
    title: "Add a rule",
    body: [
      field("Effect", effect), field("Who", who, "A user, group:NAME, role:NAME, * for all who have signed in, or anonymous."),
      el("fieldset", { class: "field" }, el("legend", { text: "Rights" }), rights.map((box) => el("label", { class: "check" }, box, ` ${box.value}`))),
      field("Kind", kind), field("Name", name, "A name, the beginning of names with * at the end, or a pattern with * and ?. Of a channel a pattern with + and #, in which %u is the user and %c the client; of a tag no ?."),
    ],
    actions: [{ label: "Add", run }],
  });
  if (!added) return;
  notice(`Added: rule ${added.number}`);
  done();
}

async function removeRule({ number, rule }, done) {
  const removed = await openDialog({
    title: `Remove rule ${number}`,
    body: [el("p", {}, el("code", { text: `${rule.effect} ${rule.who} ${rule.rights.join(",")} ${rule.kind} ${rule.name ?? "*"}` })), el("p", { text: "It counts no more at once, also for connections that are open." })],
    actions: [{ label: "Remove", kind: "first danger", run: () => send("DELETE", path("access", "rules", number)) }],
  });
  if (removed === null) return;
  notice(`Removed: rule ${number}`);
  done();
}

export function makeRoles(signal, shown, failed) {
  const make = (row) => makeRole(row, () => table.refresh());
  const none = (prefix) => (prefix ? `No role's name begins with “${prefix}”.` : "There are no roles but admin, which may do everything; users have it by themselves.");
  const table = makeList({
    where: "/access/roles", name: "roles", textOf: ({ name }) => name, action: { label: "Add a role", run: (done) => setRole(null, done) },
    label: "Roles", columns: ROLES, keyOf: ({ name }) => name, make, fill: fillRole, none, shown, signal, failed,
  });
  return table;
}

function makeRole(row, done) {
  const name = el("span", { class: "mono", id: newId("role") });
  row.parts = { name, members: el("span") };
  return [name, row.parts.members, el("button", { type: "button", text: "Change", "aria-describedby": name.id, onclick: () => setRole(row.item, done) })];
}

function fillRole({ parts }, { name, members }) {
  fillCell(parts.name, name, name);
  fillNames(parts.members, members);
}

/** Without members there is no role. */
async function setRole(role, done) {
  const name = namesInput([], { required: true, maxlength: 128, autofocus: true });
  const members = namesInput(role?.members);
  const run = () => send("PUT", path("access", "roles", role?.name ?? name.value.trim()), { members: namesIn(members.value) });
  const isDone = await openDialog({
    title: role ? `Members of ${role.name}` : "Add a role",
    body: [!role && field("Name", name), field("Members", members, "Users, and group:NAME for groups, with commas between them. Without any the role is gone.")],
    actions: [{ label: role ? "Change" : "Add", run }],
  });
  if (isDone !== null) done();
}
