// The frame around every view: what the node is, whether it answers, and when the first data is there.

import { Problem, connection, get, poll } from "./api.js";
import { explain, notice } from "./dialog.js";
import { el, set, setText } from "./dom.js";
import { clock, instant, span } from "./format.js";

const AGAIN_MS = [500, 1_000, 2_000, 3_000];

/** Tells `stats`, whenever they came; their values are the event's `detail`. */
export const node = new EventTarget();

const strip = document.getElementById("node");
const parts = { dot: el("i", { class: "dot", "aria-hidden": "true" }), name: el("span", { class: "name" }), about: el("span", { class: "about" }) };
strip.append(parts.dot, parts.name, parts.about);
let known = null;
let ahead = 0;

function showNode(stats) {
  const state = stats.replica ? "replica" : stats.refused === null ? "takes writes" : "takes no writes";
  set(parts.dot, "class", `dot ${stats.failure ? "bad" : stats.refused !== null ? "warn" : "good"}`);
  setText(parts.name, stats.node_id.slice(0, 8));
  set(parts.name, "title", `node ${stats.node_id}, cluster ${stats.cluster_id}, started ${instant(stats.started)}`);
  setText(parts.about, `${stats.version} · up ${span((stats.now - stats.started) / 1e6)} · ${state}`);
  if (known && known.started !== stats.started) notice("The node was started anew.");
  if (known && known.version !== stats.version) location.reload();
  known = stats;
  ahead = stats.now - Date.now() * 1000;
  node.dispatchEvent(new CustomEvent("stats", { detail: stats }));
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
export const refreshNode = poll(async () => showNode(await get("/stats")), 2_000, forever, report);

const banner = document.getElementById("banner");

function showLost() {
  const seconds = (Date.now() - connection.since) / 1000;
  setText(banner, `The node does not answer since ${clock(connection.since * 1000)} (${span(seconds)}). What you see is how it was. Trying again…`);
  banner.hidden = false;
  document.documentElement.classList.add("lost");
  set(parts.dot, "class", "dot bad");
}

async function comeBack() {
  for (let turn = 0; connection.lost; turn += 1) {
    showLost();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS[Math.min(turn, AGAIN_MS.length - 1)]));
    await get("/healthz", {}, { timeout: 3_000 }).catch(() => {});
  }
}

connection.addEventListener("lost", comeBack);
connection.addEventListener("back", () => {
  banner.hidden = true;
  document.documentElement.classList.remove("lost");
  notice("The node answers again.");
});

/** Something a view asked for failed, and the view has no better place to say so. */
export function report(error) {
  notice(error instanceof Problem ? explain(error) : String(error), "trouble");
}

export function ready() {
  document.documentElement.dataset.ready = "true";
}
