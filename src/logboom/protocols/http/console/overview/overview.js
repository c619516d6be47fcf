// The overview: how the node is, what it does, what it has.

import { get, poll } from "../node/api.js";
import { isNodeHidden, lastStats, node, nodeNow, ready, report } from "../node/shell.js";
import { el } from "../page/dom.js";
import { Health } from "./health.js";
import { makeConnections, makeLimits } from "./limits.js";
import { ReplicaCard, WritesButton } from "./node_actions.js";
import { Samples, makePlots } from "./plots.js";
import { makeStaged } from "./staged.js";
import { Topics } from "./topics.js";
import { Troubles } from "./troubles.js";

const OFTEN_MS = 2_000;
const SELDOM_MS = 5_000;
const PARTS = ["stats", "history", "checkup", "incidents", "topics"];
const SHOW_MS = 1_500;
const TELL_MS = 60_000;

export function open(main, route, signal) {
  const arrived = arrivals(main, signal);
  const hidden = {};
  const failed = failures(arrived, hidden);
  const topics = new Topics(route.query, signal, () => arrived("topics"), failed("topics"));
  const parts = build(main, topics);
  Object.assign(hidden, {
    stats: [parts.limits, parts.connections, parts.staged].map(({ element }) => element),
    history: parts.plots.elements, checkup: [parts.health.element], incidents: [parts.troubles.element], topics: [topics.element],
  });
  const showStats = (stats) => {
    for (const part of [parts.limits, parts.connections, parts.staged, parts.writes, parts.replica]) part.show(stats);
    parts.health.showNode(stats);
    arrived("stats");
  };
  node.addEventListener("stats", ({ detail }) => showStats(detail), { signal });
  if (lastStats()) showStats(lastStats());
  const hideStats = () => {
    for (const element of hidden.stats) element.hidden = true;
    arrived("stats");
  };
  node.addEventListener("refused", hideStats, { signal });
  if (isNodeHidden()) hideStats();
  watch(parts, signal, arrived, failed);
  return {
    title: "Overview",
    move(next) {
      topics.move(next.query);
      return true;
    },
  };
}

function build(main, topics) {
  const parts = { plots: makePlots(), limits: makeLimits(), connections: makeConnections(), staged: makeStaged(), troubles: new Troubles() };
  Object.assign(parts, { writes: new WritesButton(), replica: new ReplicaCard() });
  parts.health = new Health([parts.writes.element]);
  const side = el("div", { class: "stack side" }, parts.limits.element, parts.troubles.element, parts.connections.element, parts.staged.element);
  main.append(el("h1", { class: "unseen", text: "Overview" }),
    el("div", { class: "stack overview" }, parts.health.element, parts.replica.element, el("div", { class: "plots" }, parts.plots.elements),
      el("div", { class: "columns" }, topics.element, side)));
  return parts;
}

function watch({ plots, health, troubles }, signal, arrived, failed) {
  const samples = new Samples();
  poll(async () => {
    samples.take(await get("/activity", { since: samples.since(nodeNow()) }, { signal }));
    plots.draw(samples);
    arrived("history");
  }, OFTEN_MS, signal, failed("history"));
  poll(async () => {
    const { findings } = await get("/checkup", {}, { signal });
    health.show(Date.now() * 1000, findings);
    arrived("checkup");
  }, SELDOM_MS, signal, failed("checkup"));
  poll(async () => {
    troubles.show((await get("/incidents", {}, { signal })).incidents);
    arrived("incidents");
  }, SELDOM_MS, signal, failed("incidents"));
}

/** What a part fails with again and again is told once a minute. What is not for the reader is not there for him. */
function failures(arrived, hidden) {
  const told = new Map();
  return (part) => (error) => {
    arrived(part);
    if (error.isForbidden) {
      for (const element of hidden[part]) element.hidden = true;
      return;
    }
    const last = told.get(part);
    if (last?.message === error.message && Date.now() - last.at < TELL_MS) return;
    told.set(part, { message: error.message, at: Date.now() });
    report(error);
  };
}

/** Shows the view when every part has its first data, so that nothing moves; or after a while, with what there is. */
function arrivals(main, signal) {
  const missing = new Set(PARTS);
  main.classList.add("coming");
  const show = () => main.classList.remove("coming");
  const timer = setTimeout(show, SHOW_MS);
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    show();
  });
  return (part) => {
    if (!missing.delete(part) || missing.size) return;
    show();
    ready();
  };
}
