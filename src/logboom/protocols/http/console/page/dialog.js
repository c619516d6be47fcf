// Dialogs that keep the focus, and short notices at the edge.

import { el, newId, setText } from "./dom.js";

const NOTICE_MS = 6_000;
const NOTICES_MAX = 4;

/**
 * A modal dialog. `body` are elements; `actions` are {label, kind, run}: `run` may be async and throw, which the dialog
 * shows; when it gives anything but false the dialog closes with it. Gives a promise of that, null where it was left. What
 * was begun before it was left goes on: the promise waits for it, and what it fails with is told.
 */
export function openDialog({ title, body, actions = [], wide = false }) {
  return new Promise((resolve) => {
    const id = newId("dialog");
    const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    const buttons = actions.map((action) => el("button", { type: action.kind === "quiet" ? "button" : "submit", class: action.kind ?? "first", text: action.label }));
    const leave = el("button", { type: "button", class: "quiet close", "aria-label": "Close", text: "✕", onclick: () => dialog.close() });
    const form = el("form", { method: "dialog" },
      el("header", {}, el("h2", { id, text: title }), leave),
      el("div", { class: "body" }, body), trouble,
      actions.length > 0 && el("footer", {}, el("button", { type: "button", class: "quiet", text: "Cancel", onclick: () => dialog.close() }), buttons));
    const dialog = el("dialog", { "aria-labelledby": id, class: wide ? "wide" : null }, form);
    let answer = null;
    let running = null;
    const act = async (action) => {
      for (const button of buttons) button.disabled = true;
      trouble.hidden = true;
      try {
        const result = await action.run();
        if (result === false) return;
        answer = result ?? true;
        dialog.close();
      } catch (error) {
        if (!dialog.open) return notice(`${title}: ${explain(error)}`, "trouble");
        setText(trouble, explain(error));
        trouble.hidden = false;
      } finally {
        for (const button of buttons) button.disabled = button.dataset.off === "true";
      }
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const action = actions[Math.max(0, buttons.indexOf(event.submitter))];
      if (action) running = act(action);
      else dialog.close();
    });
    closeBeside(dialog);
    dialog.addEventListener("close", async () => {
      document.body.append(document.getElementById("notices"));
      dialog.remove();
      await running;
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** By a click beside it; not by one that began inside, where text was selected. */
function closeBeside(dialog) {
  let isBeside = false;
  dialog.addEventListener("pointerdown", (event) => (isBeside = event.target === dialog));
  dialog.addEventListener("click", (event) => isBeside && event.target === dialog && dialog.close());
}

/** What is open belongs to a view, and goes with it. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

/** What went wrong and what to do, in a sentence or two. */
export function explain(error) {
  const fix = error.fix ? `: ${error.fix}` : "";
  return `${error.message}${fix}`;
}

/** Tell the user that something has happened; `kind` is "done" or "trouble". What is being said is not said twice. */
export function notice(text, kind = "done") {
  const notices = document.getElementById("notices");
  const dialog = document.querySelector("dialog[open]");
  if (dialog && !dialog.contains(notices)) dialog.append(notices); // behind a dialog nobody would see or hear them
  let line = [...notices.children].find((each) => each.textContent === text && each.classList.contains(kind));
  if (line) clearTimeout(line.timer);
  else notices.append((line = el("p", { class: `notice ${kind}`, text })));
  while (notices.children.length > NOTICES_MAX) notices.firstElementChild.remove();
  line.timer = setTimeout(() => line.remove(), NOTICE_MS);
}

/** A label and its control, with a line of help below. */
export function field(label, control, help = "") {
  const id = control.id || newId("field");
  control.id = id;
  const hint = help ? el("p", { class: "help", id: `${id}-help`, text: help }) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return el("div", { class: "field" }, el("label", { for: id, text: label }), control, hint);
}
