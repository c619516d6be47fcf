// What the node would refuse to do, and why: said before it is asked.

import { el, set, setText } from "../page/dom.js";
import { lastStats } from "./shell.js";

export function isInternal(name) {
  return name.startsWith("_");
}

/** Why the node takes no change of anything; "" where it does. */
export function nodeRefusal() {
  const source = lastStats()?.replica?.source;
  return source ? `This node is a replica of ${source} and changes nothing of its own. Do it there, or promote this one.` : "";
}

/** Why the node takes no change of a topic; "" where it does. Cursors on an internal topic are anybody's. */
export function refusal(name, { cursor = false } = {}) {
  if (nodeRefusal()) return nodeRefusal();
  if (isInternal(name) && !cursor) return "The node keeps this topic itself: it is not changed from outside.";
  return "";
}

/** A line that says why these controls are off. `update(general, own)` turns them off for either; only `own` is said here. */
export function obstacle(...controls) {
  const line = el("p", { class: "help obstacle", hidden: true });
  line.update = (general, own = "") => {
    setText(line, general ? "" : own);
    line.hidden = line.textContent === "";
    for (const control of controls) {
      set(control, "disabled", Boolean(general || own));
      set(control, "title", general || null);
    }
  };
  return line;
}
