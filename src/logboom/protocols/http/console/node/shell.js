// The frame around every view: what the node is, whether it answers, and when the first data is there.

import { explain, notice } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { clock, instant, span } from "../text/format.js";
import { Lost, Problem, connection, get, poll } from "./api.js";

const AGAIN_MS = [500, 1_000, 2_000, 3_000];

/** Tells `stats`, whenever they came; their values are the event's `detail`. And `refused`, where they are not for the reader. */
export const node = new EventTarget();

const strip = document.getElementById("node");
const parts = { dot: el("i", { class: "dot", "aria-hidden": "true" }), name: el("span", { class: "name" }), about: el("span", { class: "about" }) };
strip.append(parts.dot, parts.name, parts.about);
let known = null;
/** Of the node that this page came from. */
let first = null;
let ahead = 0;
let isRefused = false;

function showNode(stats) {
  const state = stats.replica ? "replica" : stats.refused === null ? "takes writes" : "takes no writes";
  set(parts.dot, "class", `dot ${stats.failure ? "bad" : stats.refused !== null ? "warn" : "good"}`);
  setText(parts.name, stats.node_id.slice(0, 8));
  set(parts.name, "title", `node ${stats.node_id}, cluster ${stats.cluster_id}, started ${instant(stats.started)}`);
  setText(parts.about, `${stats.version} · up ${span((stats.now - stats.started) / 1e6)} · ${state}`);
  if (known && known.node_id !== stats.node_id) notice("Another node answers at this address now.", "trouble");
  else if (known && known.started !== stats.started) notice("The node was started anew.");
  known = stats;
  first ??= stats;
  if ((first.version !== stats.version || first.node_id !== stats.node_id) && !isTyping()) location.reload();
  ahead = stats.now - Date.now() * 1000;
  node.dispatchEvent(new CustomEvent("stats", { detail: stats }));
}

/** Whether there is something here that a reload would lose. */
function isTyping() {
  return document.querySelector("dialog[open], .setting.touched") !== null;
}

/** The node's stats as they came last; null before. */
export function lastStats() {
  return known;
}

/** What time it is for the node, microseconds: its clock need not be the reader's. */
export function nodeNow() {
  return Date.now() * 1000 + ahead;
}

const forever = new AbortController().signal;

/** Ask for the node's stats now. */
export const refreshNode = poll(async () => showNode(await get("/stats")), 2_000, forever, (error) => {
  if (!error.isForbidden) return report(error);
  isRefused = true;
  return node.dispatchEvent(new Event("refused"));
});

/** Whether the reader may not know how the node is. */
export function isNodeHidden() {
  return isRefused && known === null;
}

const banner = document.getElementById("banner");
/** How long is not said aloud: it changes with every try. */
const lost = { words: el("span"), waited: el("span", { class: "waited", "aria-hidden": "true" }) };
banner.append(lost.words, " ", lost.waited);

function showLost() {
  const seconds = (Date.now() - connection.since) / 1000;
  const instead = connection.instead && `: ${connection.instead}`;
  setText(lost.words, `The node has not answered since ${clock(connection.since * 1000)}${instead}. What you see is how it was.`);
  setText(lost.waited, `Trying again for ${span(seconds)}…`);
  banner.hidden = false;
  document.documentElement.classList.add("lost");
  set(parts.dot, "class", "dot bad");
}

let isComing = false;

/** Asks until it answers; once for all who have lost it, and only while somebody looks. */
async function comeBack() {
  showLost();
  if (isComing) return;
  isComing = true;
  for (let turn = 0; connection.lost; turn += 1) {
    showLost();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(turn, AGAIN_MS.length - 1)]));
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    await get("/healthz", {}, { timeout: 3_000 }).catch(() => {});
  }
  isComing = false;
}

connection.addEventListener("lost", comeBack);
connection.addEventListener("back", () => {
  banner.hidden = true;
  document.documentElement.classList.remove("lost");
  notice("The node answers again.");
});

/** Something a view asked for failed, and the view has no better place to say so. */
export function report(error) {
  notice(error instanceof Problem || error instanceof Lost ? explain(error) : String(error), "trouble");
}

export function ready() {
  document.documentElement.dataset.ready = "true";
}
