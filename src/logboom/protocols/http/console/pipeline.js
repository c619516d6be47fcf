// The place of the pipeline: what its log says of jobs and their runs.

import { get, poll } from "./api.js";
import { el } from "./dom.js";
import { ready, report } from "./shell.js";

const TOPIC = "_pipeline";

export function open(main, route, signal) {
  const place = el("div", {});
  main.append(el("h1", { text: "Pipeline" }), place);
  let shown = null;
  poll(async () => {
    const { topics } = await get("/topics", { prefix: TOPIC, internal: true, limit: 1 }, { signal });
    const exists = topics.some(({ name }) => name === TOPIC);
    if (shown !== exists) place.replaceChildren(exists ? log() : nothing());
    shown = exists;
    ready();
  }, 5_000, signal, report);
  return { title: "Pipeline" };
}

function log() {
  return el("p", {}, "Jobs and their runs are records of ", el("a", { href: `#/topics/${TOPIC}`, text: TOPIC }), ".");
}

function nothing() {
  return el("div", { class: "card empty" },
    el("h2", { text: "No jobs have run on this node" }),
    el("p", {}, "Checkpoints, archives, checks and reports will be listed here, with their runs and results."),
    el("p", {}, "Until then a topic can be worked up from its files, or through the ", el("a", { href: "/docs", text: "API" }), ":"),
    el("pre", {}, 'logboom sql "select count(*) from events"\ncurl "$NODE/topics/events/records?format=arrow"'.replace("$NODE", location.origin)));
}
