// The dialog that writes one record, of exactly the bytes that were typed.

import { path, send } from "../node/api.js";
import { checkSame } from "../node/same_topic.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { findFault, lineAt } from "../text/json.js";
import { bytesOf, fromBase64, fromHex, toBase64 } from "../text/value.js";

const KINDS = ["Text", "JSON", "Base64", "Hex", "Tombstone"];
/** What stood in the dialog last, so that the next record need not be typed anew. */
let last = { value: "", as: "Text", key: "", channel: "", tags: "", headers: "", partition: "" };

/** Ask for a record and write it to the topic. */
export async function writeRecord(info) {
  const { name, partitions } = info;
  const controls = makeControls(partitions);
  const { value, as } = controls;
  const remember = () => (last = Object.fromEntries(Object.entries(controls).map(([each, control]) => [each, control.value])));
  as.addEventListener("change", () => (value.disabled = as.value === "Tombstone"));
  value.disabled = as.value === "Tombstone";
  const body = el("div", { class: "write-record", oninput: remember, onchange: remember },
    field("Value", value),
    el("div", { class: "two" }, field("As", as), field("Partition", controls.partition, "Any: chosen by the key, or else by the channel.")),
    el("div", { class: "two" }, field("Key", controls.key), field("Channel", controls.channel)),
    field("Tags", controls.tags, "Separated by commas."),
    field("Headers", controls.headers, "One on each line, as name: value. A name may come twice."));
  const run = async () => {
    const query = { as: "record", partition: controls.partition.value };
    const record = makeRecord(last);
    await checkSame(info); // a write would make a topic that is gone
    const answer = await send("POST", path("topics", name, "records"), record, { query });
    notice(`Written: ${name}/${answer.partitions[0]} seqno ${answer.seqnos[0]}`);
  };
  remember();
  await openDialog({ title: "Write a record", body: [body], actions: [{ label: "Write", run }] });
}

function makeControls(partitions) {
  const line = (name) => el("input", { type: "text", value: last[name], autocomplete: "off", spellcheck: "false" });
  const choice = (options, chosen) => el("select", {}, options.map(([value, text]) => el("option", { value, text, selected: value === chosen })));
  const numbers = partitions.map(({ partition }) => [String(partition), String(partition)]);
  return {
    value: el("textarea", { value: last.value, rows: 8, spellcheck: "false", autofocus: true }),
    as: choice(KINDS.map((kind) => [kind, kind]), last.as),
    key: line("key"),
    channel: line("channel"),
    tags: line("tags"),
    headers: el("textarea", { value: last.headers, rows: 2, spellcheck: "false" }),
    partition: choice([["", "Any"], ...numbers], last.partition),
  };
}

/** The record as the API takes it. The value goes as bytes: JSON would not come back as it was typed. */
function makeRecord({ value, as, key, channel, tags, headers }) {
  const bytes = makeValue(value, as);
  return {
    value: bytes === null ? null : { base64: toBase64(bytes) },
    key: key || null,
    channel: channel || null,
    tags: tags.split(",").map((tag) => tag.trim()).filter(Boolean),
    headers: headers.split("\n").filter((text) => text.trim()).map(makeHeader),
  };
}

function makeValue(text, as) {
  if (as === "Tombstone") return null;
  if (as === "Base64") return fromBase64(text);
  if (as === "Hex") return fromHex(text);
  const fault = as === "JSON" ? findFault(text) : null;
  if (fault === null) return bytesOf(text);
  const { line, column } = lineAt(text, fault.at);
  throw new Error(`The value is no JSON: line ${line}, column ${column}, where ${fault.expected} should be.`);
}

function makeHeader(text) {
  const colon = text.indexOf(":");
  if (colon < 1) throw new Error(`“${text.slice(0, 60)}” is no header: write name: value.`);
  return [text.slice(0, colon).trim(), text.slice(colon + 1).trim()];
}
