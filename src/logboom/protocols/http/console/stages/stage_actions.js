// Throwing a stage away and forgetting a key, each after a dialog has asked. `done()` is called when it is done.

import { path, send } from "../node/api.js";
import { notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { bytes, plural } from "../text/format.js";
import { visibleRuns } from "../text/value.js";
import { numberWords, readKeys } from "./keys.js";

const SHORT = 8;

export function shortId({ id }) {
  return id.slice(0, SHORT);
}

export async function discardStage(stage, done) {
  const size = bytes(stage.size_bytes);
  const content = stage.records ? `${plural(stage.records, "record")}, ${size},` : size;
  const discarded = await openDialog({
    title: `Discard stage ${shortId(stage)}`,
    body: [
      stage.note && el("p", { class: "quiet" }, shownRuns(visibleRuns(stage.note))),
      el("p", { text: `Its content, ${content} is deleted; no reader has seen it. A client that writes to the stage gets an error, and cannot publish it.` }),
    ],
    actions: [{ label: "Discard", kind: "first danger", run: () => send("DELETE", path("stages", stage.id)) }],
  });
  if (discarded === null) return;
  notice(`Discarded: stage ${shortId(stage)}`);
  done();
}

export async function forgetKey(key, done) {
  const forgotten = await openDialog({
    title: `Forget key ${key.name}`,
    body: key.is_open ? [el("p", { class: "trouble", text: givingUp(key) }), el("p", { text: `Then ${repeated(key)}` })]
      : [el("p", { text: `The records stay. But the node will not know that they were published: ${repeated(key)}` })],
    actions: [{ label: "Forget", kind: "first danger", run: () => forget(key) }],
  });
  if (forgotten === null) return;
  notice(`Forgotten: key ${key.name}`);
  done();
}

function repeated(key) {
  const numbers = key.number === 0n ? "number 0" : `number ${numberWords(key)}, or a lower one,`;
  return `a client that repeats ${numbers} publishes it again, and its records are in the logs twice.`;
}

function givingUp(key) {
  return `Number ${numberWords(key)} is not in all of its logs yet. While the node works on it, it refuses to forget it. If it can never be finished, this gives it up: records that are in the logs stay, the rest is deleted.`;
}

/** Only where it is still what was looked at. */
async function forget(key) {
  const { keys: [now] } = await readKeys({ prefix: key.name, sort: "name", offset: 0, limit: 1 });
  if (now?.name === key.name && now.number !== key.number) {
    throw new Error(`Number ${numberWords(now)} was published under ${key.name} meanwhile. Nothing was forgotten.`);
  }
  return send("DELETE", "/keys", undefined, { query: { name: key.name } });
}
