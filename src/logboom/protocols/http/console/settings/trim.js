// Trimming a topic: everything below a seqno is given up for ever.

import { path, send } from "../node/api.js";
import { obstacle, refusal } from "../node/permission.js";
import { checkSame } from "../node/same_topic.js";
import { node } from "../node/shell.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el, setText } from "../page/dom.js";
import { partitionChoice } from "../page/partition_choice.js";
import { count, plural } from "../text/format.js";
import { NUMBER, parseAmount } from "../text/units.js";

export function trimming(topic, signal) {
  const partition = partitionChoice(topic.info().partitions.length);
  const below = el("input", { type: "text", inputmode: "numeric", autocomplete: "off" });
  const button = el("button", { type: "submit", class: "danger", text: "Trim" });
  const why = obstacle(partition, below, button);
  const wrong = el("p", { class: "trouble", role: "alert", hidden: true });
  const belowField = field("Below seqno", below, "…");
  const show = () => {
    const log = topic.info().partitions[Number(partition.value)];
    setText(belowField.querySelector(".help"), log ? extent(log) : "There is no such partition.");
    const { refused } = topic.info();
    why.update(refusal(topic.name), refused === null ? "" : "The topic takes no writes, and a trim is one.");
  };
  const submit = (event) => {
    event.preventDefault();
    const trouble = ask(topic, Number(partition.value), below);
    setText(wrong, trouble);
    wrong.hidden = trouble === "";
  };
  partition.addEventListener("input", show);
  topic.addEventListener("info", show, { signal });
  node.addEventListener("stats", show, { signal });
  show();
  return el("section", { class: "card", "aria-label": "Trim" }, el("header", {}, el("h2", { text: "Trim" })),
    el("p", { text: "Nothing below the seqno is ever served again. What lies in whole segments below it is dropped from the disk soon after." }),
    el("form", { class: "trim-row", novalidate: true, onsubmit: submit }, field("Partition", partition), belowField, button), wrong, why);
}

function extent(log) {
  if (log.first === log.committed) return `Partition ${log.partition} is empty.`;
  return `Partition ${log.partition} has seqnos ${count(log.first)} to ${count(log.committed - 1)}.`;
}

/** Opens the dialog; gives what is wrong with the seqno, "" where nothing is. */
function ask(topic, partition, below) {
  const log = topic.info().partitions[partition];
  if (!log) return "There is no such partition.";
  let seqno;
  try {
    seqno = Number(parseAmount(below.value, NUMBER));
  } catch (error) {
    return error.message;
  }
  if (seqno <= log.first) return `There is nothing below seqno ${count(seqno)}: the partition begins with ${count(log.first)}.`;
  if (seqno > log.committed) return `The partition ends before seqno ${count(log.committed)}: give that one to trim everything.`;
  confirm(topic, log, seqno, below);
  return "";
}

async function confirm(topic, log, seqno, below) {
  const info = topic.info();
  const trim = async () => {
    await checkSame(info);
    return send("POST", path("topics", topic.name, "trim"), { seqno, partition: log.partition });
  };
  const what = `${plural(seqno - log.first, "record")} of partition ${log.partition}, seqnos ${count(log.first)} to ${count(seqno - 1)},`;
  const trimmed = await openDialog({
    title: `Trim ${topic.name}`,
    body: [el("p", { text: `${what} can never be read again.` })],
    actions: [{ label: "Trim", kind: "first danger", run: trim }],
  });
  if (trimmed === null) return;
  below.value = "";
  notice(`Trimmed: ${topic.name}/${log.partition} begins with seqno ${count(trimmed.first)}`);
  topic.refresh();
}
