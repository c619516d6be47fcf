// Text in which some characters are shown as escapes.

import { el } from "./dom.js";

/** Runs as elements: what is not in the text itself looks different. */
export function shownRuns(runs) {
  return runs.map((run) => (run.text !== undefined ? run.text : el("span", { class: "escape", text: run.escape })));
}
