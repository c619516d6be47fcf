// Who the node takes the reader for, at the end of the head; and how to sign out.

import { notice } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { connection, get, send } from "./api.js";

const WAYS = { password: "with a password", token: "with a token", certificate: "with a certificate", system: "as the user who runs the node", bearer: "by another service" };

const strip = document.getElementById("caller");
const parts = { name: el("span", { class: "name" }), out: el("button", { type: "button", class: "quiet", text: "Sign out", onclick: signOut }) };
strip.append(parts.name, parts.out);

/** {caller: {principal, groups, roles, by, …}, session}; asked for once. Null where nobody knows. */
export const identity = get("/access/whoami").then(show, () => null);

function show(found) {
  const { caller, session } = found;
  strip.hidden = isAnonymous(found) || connection.isStranger;
  setText(parts.name, caller.principal);
  set(parts.name, "title", `${caller.principal}, signed in ${wayOf(caller)}`);
  parts.out.hidden = !session;
  return found;
}

connection.addEventListener("stranger", () => (strip.hidden = true));

export function isAnonymous({ caller }) {
  return caller.by === "" && caller.principal === "anonymous";
}

export function wayOf({ by }) {
  return WAYS[by] ?? "";
}

/** The page is loaded again, so that nothing of what was seen stays. */
export async function signOut() {
  try {
    await send("DELETE", "/access/session");
    location.reload();
  } catch (error) {
    notice(error.message, "trouble");
  }
}
