// Groups of consumers: a list of them, or one with its members and its logs.

import { get } from "../node/api.js";
import { PagedTable, fillCell } from "../node/paged_table.js";
import { nodeRefusal } from "../node/permission.js";
import { node, ready, report } from "../node/shell.js";
import { el, newId, set, setText } from "../page/dom.js";
import { count } from "../text/format.js";
import { openGroup } from "./group.js";
import { GroupActions } from "./group_actions.js";
import { enable, fillState, groupAddress, obstacleOf } from "./group_state.js";

const EVERY_MS = 2_000;
const COLUMNS = [
  { label: "Group", name: "name", sort: "name", order: "ascending" },
  { label: "State", name: "state" },
  { label: "Members", name: "members", isNumber: true },
  { label: "Logs", name: "logs", isNumber: true, meaning: "That it has places in, or that members hold" },
  { label: "Lag", name: "lag", isNumber: true, sort: "lag", order: "descending", meaning: "Records between its places and the ends of their logs" },
  { label: "Actions", name: "actions" },
];
const EXAMPLE = `logboom read orders --group billing --follow

curl localhost:1775/groups/billing/members -d '{"topics": "orders"}'`;

export function open(main, route, signal) {
  const name = route.parts[1];
  if (name !== undefined) return openGroup(main, name, signal);
  const empty = explanation();
  const show = () => {
    const isEmpty = table.total === 0 && table.wanted.prefix === "";
    empty.hidden = !isEmpty;
    table.element.hidden = isEmpty;
    ready();
  };
  const table = makeGroups(signal, show, (error) => {
    ready();
    report(error);
  });
  const showObstacle = () => table.setObstacle(nodeRefusal());
  node.addEventListener("stats", showObstacle, { signal });
  showObstacle();
  main.append(el("h1", { text: "Groups" }), el("div", { class: "stack groups" }, table.element, empty));
  return { title: "Groups", move: (next) => next.parts[1] === undefined };
}

function makeGroups(signal, shown, failed) {
  const ask = async ({ prefix, sort, offset, limit }) => {
    const { groups, total } = await get("/groups", { prefix, sort, offset, limit }, { signal });
    return { items: groups, total };
  };
  const make = (row) => makeCells(row, new GroupActions(() => table.refresh()));
  const fill = (row, group) => fillRow(row, group, table.why);
  const none = (prefix) => `No group begins with “${prefix}”.`;
  const table = new PagedTable({
    label: "Groups", columns: COLUMNS, sort: "lag", keyOf: ({ group }) => group, make, fill, ask, every: EVERY_MS, search: "Search groups", none, shown, signal, failed,
  });
  return table;
}

function makeCells(row, actions) {
  const name = el("a", { class: "mono", id: newId("group") });
  const reset = el("button", { type: "button", text: "Reset", "aria-describedby": name.id, onclick: () => actions.reset(row.item) });
  const remove = el("button", { type: "button", class: "danger", text: "Delete", "aria-describedby": name.id, onclick: () => actions.remove(row.item) });
  row.parts = { name, pill: el("span"), members: el("span"), logs: el("span"), lag: el("span"), buttons: [reset, remove] };
  const { pill, members, logs, lag } = row.parts;
  return [name, pill, members, logs, lag, el("div", { class: "buttons" }, reset, remove)];
}

function fillRow({ parts }, info, why) {
  setText(parts.name, info.group);
  set(parts.name, "href", groupAddress(info.group));
  set(parts.name, "title", info.group);
  fillState(parts.pill, info);
  fillCell(parts.members, count(info.members));
  fillCell(parts.logs, count(info.logs));
  fillCell(parts.lag, count(info.lag), lagWords(info.lags));
  enable(parts.buttons, why || obstacleOf(info.group, info.members));
}

function lagWords(lags) {
  const some = Object.entries(lags ?? {}).toSorted(([, one], [, other]) => other - one).slice(0, 10);
  return some.map(([topic, lag]) => `${topic}: ${count(lag)}`).join("\n") || null;
}

function explanation() {
  return el("div", { class: "card empty explained", hidden: true },
    el("h2", { text: "There are no groups" }),
    el("p", {}, "The members of a group share the logs of topics: each log is read by one of them, and when one goes, the others take its logs over where it stopped. Whoever joins makes one:"),
    el("pre", { text: EXAMPLE }),
    el("p", {}, "More of it is in ", el("code", { text: "docs/howto/groups.md" }), " and in the ", el("a", { href: "/docs", text: "API" }), "."));
}
