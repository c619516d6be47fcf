// How a group is, in a word and a sentence; where its page is, and what keeps it from being changed.

import { path } from "../node/api.js";
import { set, setText } from "../page/dom.js";

const STATES = {
  empty: ["", "Nobody is a member now; its places stay."],
  stable: ["good", "Every log that its members want is held by one of them."],
  moving: ["warn", "Logs are on their way from one member to another; the others go on."],
};

export function groupAddress(name) {
  return `#${path("groups", name)}`;
}

export function fillState(pill, { state, mode }) {
  const [kind, meaning] = STATES[state] ?? ["", null];
  setText(pill, mode === "queue" ? `${state}, queue` : state);
  set(pill, "class", `pill ${kind}`);
  set(pill, "title", meaning);
}

export function enable(buttons, why) {
  for (const button of buttons) {
    button.disabled = why !== "";
    set(button, "title", why || null);
  }
}

/** Why a group is neither reset nor deleted; "" where it is. */
export function obstacleOf(group, members) {
  if (members > 0) return "It has members: stop them first.";
  return [".", ".."].includes(group) ? "A browser takes this name for a directory: use logboom group." : "";
}
