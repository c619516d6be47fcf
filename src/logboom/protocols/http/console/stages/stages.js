// Staged publish: what is staged and not published, and the keys that something was published under.

import { nodeRefusal } from "../node/permission.js";
import { node, ready, report } from "../node/shell.js";
import { el } from "../page/dom.js";
import { makeKeys } from "./keys_table.js";
import { makeStages } from "./stages_table.js";

const EXAMPLE = `from logboom import Client

with Client() as client, client.transaction("orders", 1) as transaction:
    transaction.write("orders", b"2 chairs", key=b"customer-4")
    transaction.write("stock", b"-2 chairs")`;

export function open(main, route, signal) {
  const empty = explanation();
  const show = () => {
    if (stages.total === null || keys.total === null) return;
    const isEmpty = stages.total === 0 && keys.total === 0 && keys.wanted.prefix === "";
    empty.hidden = !isEmpty;
    for (const { element } of [stages, keys]) element.hidden = isEmpty;
    ready();
  };
  const stages = makeStages(signal, show, report);
  const keys = makeKeys(signal, show, report);
  const showObstacle = () => {
    for (const table of [stages, keys]) table.setObstacle(nodeRefusal());
    empty.firstElementChild.hidden = nodeRefusal() === "";
  };
  const published = publishedSince();
  node.addEventListener("stats", ({ detail }) => {
    showObstacle();
    if (published(detail)) keys.refresh();
  }, { signal });
  showObstacle();
  main.append(el("h1", { text: "Stages" }), el("div", { class: "stack" }, stages.element, keys.element, empty));
  return { title: "Stages" };
}

/** Tells of stats whether something was published, or forgotten, since it was asked last. */
function publishedSince() {
  let last = null;
  return ({ staging: { published, publishing, keys } = {} }) => {
    const before = last;
    last = [published, publishing, keys].join();
    return before !== null && before !== last;
  };
}

function explanation() {
  return el("div", { class: "card empty explained", hidden: true },
    el("p", { hidden: true, text: "This node is a replica: what is staged, and what was published under which key, its source knows." }),
    el("h2", { text: "Nothing is staged, and nothing was published" }),
    el("p", {}, "Records that belong together appear together, in all their topics, or not at all: they are staged where nobody sees them, ",
      "and published under a key, once. Transactions do that, and Spark's sink:"),
    el("pre", { text: EXAMPLE }),
    el("p", {}, "More of it is in ", el("code", { text: "docs/howto/transactions.md" }), " and in the ", el("a", { href: "/docs", text: "API" }), "."));
}
