// Who may do what: oneself, users, tokens, rules, roles and quotas. What the reader may not see is not there.

import { connection } from "../node/api.js";
import { identity, isAnonymous, signOut, wayOf } from "../node/caller.js";
import { ready, report } from "../node/shell.js";
import { el } from "../page/dom.js";
import { makeExplain } from "./explain.js";
import { makeQuotas } from "./quotas.js";
import { makeRoles, makeRules } from "./rules.js";
import { makeTokens } from "./tokens.js";
import { changePassword } from "./user_actions.js";
import { makeUsers } from "./users.js";

const MAKERS = [makeUsers, makeTokens, makeRules, makeRoles, makeQuotas];

export function open(main, route, signal) {
  const self = el("section", { class: "card self", "aria-label": "You" });
  const missing = new Set(MAKERS);
  const explain = makeExplain();
  const tables = MAKERS.map((make) => {
    const arrived = () => missing.delete(make) && !missing.size && ready();
    const table = make(signal, () => {
      table.element.hidden = false;
      if (make === makeRules) explain.hidden = false;
      arrived();
    }, (error) => {
      arrived();
      if (error.isForbidden) table.element.hidden = true;
      else report(error);
    });
    return table;
  });
  main.append(el("h1", { text: "Access" }), el("div", { class: "stack access" }, self, tables.map(({ element }) => element), explain));
  identity.then((found) => showSelf(self, found));
  return { title: "Access" };
}

function showSelf(card, found) {
  if (found === null) return void card.remove();
  const { caller } = found;
  const words = isAnonymous(found) ? ["You have not signed in: what you see here is what anybody sees."]
    : ["You are ", el("b", { text: caller.principal }), `, signed in ${wayOf(caller)}`, ...memberships(caller), "."];
  const button = (text, onclick) => el("button", { type: "button", text, onclick });
  const actions = el("div", { class: "buttons" }, isAnonymous(found) && button("Sign in", () => connection.estrange(true)),
    caller.by === "password" && button("Change password", () => changePassword(caller.principal)), found.session && button("Sign out", signOut));
  card.replaceChildren(el("header", {}, el("p", {}, words), actions));
}

function memberships({ groups, roles }) {
  const all = [...roles.map((name) => `role ${name}`), ...groups.map((name) => `group ${name}`)];
  return all.length ? [`; ${all.join(", ")}`] : [];
}
