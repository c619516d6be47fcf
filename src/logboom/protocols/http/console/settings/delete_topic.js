// Deleting a topic: only by typing its name, and only the very topic that was looked at.

import { path, send } from "../node/api.js";
import { obstacle, refusal } from "../node/permission.js";
import { node } from "../node/shell.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { bytes, plural } from "../text/format.js";

export function deletion(topic, signal) {
  const button = el("button", { type: "button", class: "danger", text: "Delete topic", onclick: () => ask(topic) });
  const why = obstacle(button);
  const show = () => why.update(refusal(topic.name));
  node.addEventListener("stats", show, { signal });
  show();
  return el("section", { class: "card", "aria-label": "Delete" }, el("header", {}, el("h2", { text: "Delete" })),
    el("p", { text: "The topic goes with all its records and cursors. There is no way back." }), button, why);
}

async function ask(topic) {
  const { id, partitions } = topic.info();
  const typed = el("input", { type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const records = partitions.reduce((sum, log) => sum + log.committed - log.first, 0);
  const size = partitions.reduce((sum, log) => sum + log.size_bytes, 0);
  const answer = openDialog({
    title: `Delete ${topic.name}`,
    body: [
      el("p", { text: `${plural(records, "record")} in ${plural(partitions.length, "partition")}, ${bytes(size)}, and all cursors on them are deleted.` }),
      field("Type the topic's name", typed),
    ],
    actions: [{ label: "Delete forever", kind: "first danger", run: () => remove(topic, id) }],
  });
  const button = typed.form.querySelector("footer [type=submit]");
  const check = () => {
    const isOff = typed.value !== topic.name;
    button.disabled = isOff;
    button.dataset.off = String(isOff);
  };
  typed.addEventListener("input", check);
  check();
  typed.focus();
  if ((await answer) === null) return;
  location.hash = "#/";
  notice(`Deleted: ${topic.name}`);
}

async function remove(topic, id) {
  topic.leaving = true;
  try {
    await send("DELETE", path("topics", topic.name), undefined, { query: { topic_id: id } });
  } catch (error) {
    topic.leaving = false;
    throw error;
  }
}
