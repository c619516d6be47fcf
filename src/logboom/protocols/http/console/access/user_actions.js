// Adding, changing and removing users, each in a dialog. `done()` is called when it is done.

import { path, send } from "../node/api.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { namesIn, namesInput } from "./lists.js";

const LEAST = 8;
const RULE = `At least ${LEAST} bytes.`;

function passwordInput(more = {}) {
  return el("input", { type: "password", minlength: LEAST, maxlength: 1024, autocomplete: "new-password", ...more });
}

export async function addUser(done) {
  const name = el("input", { required: true, maxlength: 128, autocomplete: "off", autocapitalize: "none", spellcheck: "false", autofocus: true });
  const password = passwordInput();
  const [groups, roles] = [namesInput(), namesInput()];
  const run = () => send("POST", "/access/users", {
    name: name.value.trim(), ...(password.value && { password: password.value }), groups: namesIn(groups.value), roles: namesIn(roles.value),
  });
  const added = await openDialog({
    title: "Add a user",
    body: [
      field("Name", name, "Letters, digits and . _ @ : / + -, beginning with a letter or digit."),
      field("Password", password, `${RULE} Without one the user signs in with tokens or a certificate.`),
      field("Groups", groups, "With commas between them."),
      field("Roles", roles, "admin may do everything."),
    ],
    actions: [{ label: "Add", run }],
  });
  if (!added) return;
  notice(`Added: ${added.name}`);
  done();
}

export async function changeUser(user, done) {
  const password = passwordInput();
  const [groups, roles] = [namesInput(user.groups), namesInput(user.roles)];
  const enabled = el("input", { type: "checkbox", checked: user.enabled });
  const run = () => send("PATCH", path("access", "users", user.name), {
    ...(password.value && { password: password.value }), groups: namesIn(groups.value), roles: namesIn(roles.value), enabled: enabled.checked,
  });
  const changed = await openDialog({
    title: `Change ${user.name}`,
    body: [
      field("New password", password, `${RULE} Empty: the password stays.`), field("Groups", groups, "With commas between them."), field("Roles", roles),
      el("label", { class: "check" }, enabled, " Enabled: may sign in and do something"),
    ],
    actions: [{ label: "Change", run }],
  });
  if (!changed) return;
  notice(`Changed: ${user.name}`);
  done();
}

export async function removeUser({ name }, done) {
  const removed = await openDialog({
    title: `Remove ${name}`,
    body: [el("p", { text: "The user and all of the user's tokens are gone at once, also for connections that are open. So are the rules and roles that name the user, if you may manage all users." })],
    actions: [{ label: "Remove", kind: "first danger", run: () => send("DELETE", path("access", "users", name)) }],
  });
  if (removed === null) return;
  notice(removed.kept ? `Removed: ${name}. ${removed.kept} rules and roles still name the user` : `Removed: ${name}`);
  done();
}

/** One's own: the session ends with the old password, so the page asks to sign in again. */
export async function changePassword(name) {
  const [password, again] = [passwordInput({ required: true, autofocus: true }), passwordInput({ required: true })];
  const run = () => {
    if (password.value !== again.value) throw new Error("The two passwords are not the same.");
    return send("PATCH", path("access", "users", name), { password: password.value });
  };
  const changed = await openDialog({
    title: "Change password",
    body: [field("New password", password, RULE), field("Again", again), el("p", { class: "help", text: "Everywhere else you are signed out, and here you sign in again." })],
    actions: [{ label: "Change", run }],
  });
  if (changed) location.reload();
}
