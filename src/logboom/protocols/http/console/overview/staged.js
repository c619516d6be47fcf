// A tile of the overview: what is staged, and how many publishes are under way. Hidden where there is neither.

import { el, setText } from "../page/dom.js";
import { bytes, plural } from "../text/format.js";

export function makeStaged() {
  const words = el("p", { class: "calm" });
  const element = el("section", { class: "card", "aria-label": "Staged publish", hidden: true },
    el("header", {}, el("h2", { text: "Staged publish" }), el("a", { class: "end", href: "#/stages", text: "Stages" })), words);
  const show = ({ staging: { stages = 0, staged_bytes: size = 0, publishing = 0 } = {} }) => {
    element.hidden = !stages && !publishing;
    const parts = [stages && `${plural(stages, "stage")} with ${bytes(size)}`, publishing && `${plural(publishing, "publish", "publishes")} under way`];
    setText(words, parts.filter(Boolean).join(", "));
  };
  return { element, show };
}
