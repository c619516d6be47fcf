// Whether a topic takes writes: stopped with a reason, and taken again.

import { path, send } from "../node/api.js";
import { obstacle, refusal } from "../node/permission.js";
import { checkSame } from "../node/same_topic.js";
import { node } from "../node/shell.js";
import { explain, field, notice, openDialog } from "../page/dialog.js";
import { el, setText } from "../page/dom.js";

const OTHERS = "Nobody but the node itself writes to this topic.";
const TAKES = "This topic takes writes. Stopping them lasts until they are taken again, or the node is restarted.";

export function writing(topic, signal) {
  const words = el("p", {});
  const button = el("button", { type: "button", onclick: () => (topic.info().refused === null ? stop(topic) : take(topic)) });
  const why = obstacle(button);
  const show = () => {
    const { refused } = topic.info();
    const isOthers = refusal(topic.name) !== "";
    setText(words, refused !== null ? `This topic takes no writes: ${refused}.` : isOthers ? OTHERS : TAKES);
    setText(button, refused === null ? "Stop taking writes" : "Take writes again");
    why.update(refusal(topic.name));
  };
  topic.addEventListener("info", show, { signal });
  node.addEventListener("stats", show, { signal });
  show();
  return el("section", { class: "card", "aria-label": "Writes" }, el("header", {}, el("h2", { text: "Writes" })), words, button, why);
}

async function stop(topic) {
  const reason = el("input", { type: "text", maxlength: "500", autocomplete: "off" });
  const info = topic.info();
  const refuse = async () => {
    await checkSame(info);
    return send("POST", path("topics", topic.name, "refuse"), { reason: reason.value.trim() });
  };
  const stopped = await openDialog({
    title: "Stop taking writes",
    body: [
      el("p", { text: `Whoever writes to ${topic.name} is refused, and told the reason. Reading goes on.` }),
      field("Reason", reason, "Shown to writers and on the console."),
    ],
    actions: [{ label: "Stop taking writes", run: refuse }],
  });
  if (stopped === null) return;
  notice(`${topic.name} takes no writes.`);
  topic.refresh();
}

async function take(topic) {
  try {
    await send("POST", path("topics", topic.name, "accept"));
  } catch (error) {
    return notice(explain(error), "trouble");
  }
  notice(`${topic.name} takes writes again.`);
  topic.refresh();
}
