// The page in the place of every other one where the node wants to know who is there.

import { connection, send } from "../node/api.js";
import { ready } from "../node/shell.js";
import { explain, field } from "../page/dialog.js";
import { el, setText } from "../page/dom.js";

const PLAIN = "This page came without TLS, so others could read the password. Open it with https://, or on the node's own machine.";

export function open(main) {
  main.append(el("div", { class: "sign-in" }, el("h1", { text: "Sign in" }), makeForm(),
    connection.isByChoice && el("p", { class: "later" }, el("button", { type: "button", class: "link", text: "Go on without signing in", onclick: () => location.reload() }))));
  ready();
  main.querySelector("input:not(:disabled)")?.focus();
  return { title: "Sign in" };
}

/** When the session has begun the page is loaded again, where it was. */
function makeForm() {
  const user = el("input", { name: "user", required: true, maxlength: 128, autocomplete: "username", autocapitalize: "none", spellcheck: "false" });
  const password = el("input", { name: "password", type: "password", required: true, maxlength: 1024, autocomplete: "current-password" });
  const token = el("input", { name: "token", type: "password", required: true, maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: "lbt_…" });
  const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
  const button = el("button", { type: "submit", class: "first", text: "Sign in" });
  const byPassword = el("div", {}, field("User", user), field("Password", password));
  const byToken = el("div", { hidden: true }, field("Token", token, "It begins with lbt_."));
  const other = el("button", { type: "button", class: "link", text: "Use a token", onclick: () => choose(byToken.hidden) });
  const form = el("form", { class: "card", "aria-label": "Sign in" }, byPassword, byToken, trouble, el("div", { class: "buttons" }, button, other));

  function choose(isToken) {
    byToken.hidden = !isToken;
    byPassword.hidden = isToken;
    for (const input of [user, password]) input.disabled = isToken;
    token.disabled = !isToken;
    setText(other, isToken ? "Use a password" : "Use a token");
    trouble.hidden = true;
    (isToken ? token : user).focus();
  }

  function tell(text) {
    setText(trouble, text);
    trouble.hidden = false;
  }

  token.disabled = true;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    trouble.hidden = true;
    const shown = byToken.hidden ? { user: user.value, password: password.value } : { token: token.value.trim() };
    try {
      await send("POST", "/access/session", shown, { isSignIn: true });
      location.reload();
    } catch (error) {
      tell(error.code === "sign-in-failed" ? sentence(error.message) : explain(error));
      const field = byToken.hidden ? password : token;
      field.value = "";
      field.focus();
    } finally {
      button.disabled = false;
    }
  });
  if (!isSecureContext) {
    for (const control of [user, password, other, button]) control.disabled = true;
    tell(PLAIN);
  }
  return form;
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
