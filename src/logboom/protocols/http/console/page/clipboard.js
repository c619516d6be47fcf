// Text for the clipboard. Browsers keep it from pages that came by plain HTTP from elsewhere: there the old way is taken.

import { notice } from "./dialog.js";
import { el } from "./dom.js";

/** Copies, and says so; `what` names it. */
export async function copyText(text, what) {
  const isCopied = await viaBrowser(text) || viaSelection(text);
  notice(isCopied ? `Copied: ${what}` : `The browser does not let this page copy ${what}.`, isCopied ? "done" : "trouble");
}

async function viaBrowser(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Inside the dialog that is open, if there is one: nothing else can have the focus. */
function viaSelection(text) {
  const focused = document.activeElement;
  const box = el("textarea", { class: "unseen", value: text, "aria-hidden": "true", tabindex: -1 });
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  box.select();
  const isCopied = document.execCommand("copy");
  box.remove();
  focused?.focus({ preventScroll: true });
  return isCopied;
}
