// Makes a topic.

import { send } from "../node/api.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";

const PARTITIONS_MAX = 10_000;

/** Asks for a name and makes the topic; then its page opens. */
export async function createTopic() {
  const name = el("input", {
    required: true, maxlength: 249, pattern: "[A-Za-z0-9._\\-]+", title: "letters, digits, dots, dashes, underscores",
    autocomplete: "off", spellcheck: "false", autofocus: true,
  });
  const partitions = el("input", { type: "number", min: 1, max: PARTITIONS_MAX, step: 1, placeholder: "the node's default", inputmode: "numeric" });
  const made = await openDialog({
    title: "New topic",
    body: [
      field("Name", name, "Letters, digits, dots, dashes and underscores, at most 249 of them. It cannot be changed later."),
      field("Partitions", partitions, "Logs that are written and read side by side; order holds within one. Leave it empty for the node's default."),
    ],
    actions: [{ label: "Create", run: () => send("POST", "/topics", wanted(name.value, partitions.value)) }],
  });
  if (!made) return;
  notice(`Created: ${made.name}`);
  location.hash = `#/topics/${encodeURIComponent(made.name)}`;
}

function wanted(name, partitions) {
  return partitions === "" ? { name } : { name, partitions: Number(partitions) };
}
