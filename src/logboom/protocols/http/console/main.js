// Which view is open, and the keys that work everywhere.
//
// A view is a function `open(main, route, signal)`: it builds its part of the page once, keeps it up to date until
// `signal` is aborted, and gives {title, move?}. `move(route)` takes a change of the address within the view, or says
// false. A view calls `ready()` of shell.js when its first data is there.

import * as access from "./access/access.js";
import * as signIn from "./access/sign_in.js";
import * as groups from "./groups/groups.js";
import { connection } from "./node/api.js";
import "./node/caller.js";
import "./node/shell.js";
import * as overview from "./overview/overview.js";
import { closeDialogs, openDialog } from "./page/dialog.js";
import { el, set } from "./page/dom.js";
import * as pipeline from "./pipeline/pipeline.js";
import * as stages from "./stages/stages.js";
import * as topic from "./topic/topic.js";

const VIEWS = {
  "": ["overview", overview.open], topics: ["overview", topic.open], groups: ["groups", groups.open], stages: ["stages", stages.open], pipeline: ["pipeline", pipeline.open],
  access: ["access", access.open],
};
const KEYS = [
  ["/", "Search"], ["?", "Show these keys"], ["Esc", "Close what is open"], ["g o", "Go to the overview"], ["g s", "Go to the stages"],
  ["g p", "Go to the pipeline"], ["g a", "Go to users and rules"], ["g c", "Go to the groups of consumers"],
  ["↑ ↓", "Next row, in a list of records"], ["← →", "Previous or next record, in an open record; previous or next segment, in the strip"],
];

const main = document.getElementById("content");
let view = null;

function parseRoute() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = where.split("/").filter(Boolean).map(decode);
  return { parts, query: new URLSearchParams(query) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function follow() {
  if (view && location.hash && !location.hash.startsWith("#/")) return;
  if (connection.isStranger) return; // until he has signed in
  const route = parseRoute();
  const place = route.parts[0] ?? "";
  const [name, open] = VIEWS[Object.hasOwn(VIEWS, place) ? place : ""];
  if (view?.open === open && view.move?.(route)) return retitle();
  const isFirst = view === null;
  enter(open, route);
  for (const link of document.querySelectorAll("nav [data-view]")) {
    set(link, "aria-current", link.dataset.view === name && "page");
    if (link.dataset.view === name) link.scrollIntoView({ inline: "nearest", block: "nearest" }); // on a phone they do not all fit
  }
  retitle();
  window.scrollTo(0, 0);
  if (!isFirst) main.focus({ preventScroll: true });
}

function enter(open, route) {
  view?.leaving.abort();
  closeDialogs();
  const leaving = new AbortController();
  document.documentElement.dataset.ready = "false";
  main.replaceChildren();
  view = { open, leaving, ...open(main, route, leaving.signal) };
}

/** The address stays: after signing in the page is loaded again, and is where it was. */
connection.addEventListener("stranger", () => {
  enter(signIn.open, parseRoute());
  retitle();
});

function retitle() {
  const title = typeof view.title === "function" ? view.title() : view.title;
  document.title = title ? `${title} · Logboom` : "Logboom";
}

/** The address says which view is open: a jump within the page must not change it. */
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

let chord = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select, [contenteditable]")) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select?.();
    }
  } else if (event.key === "?") showKeys();
  else if (chord === "g" && event.key === "o") location.hash = "#/";
  else if (chord === "g" && event.key === "s") location.hash = "#/stages";
  else if (chord === "g" && event.key === "p") location.hash = "#/pipeline";
  else if (chord === "g" && event.key === "a") location.hash = "#/access";
  else if (chord === "g" && event.key === "c") location.hash = "#/groups";
  chord = event.key;
});

function showKeys() {
  const rows = KEYS.map(([key, meaning]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", { text: key })), el("td", { text: meaning })));
  openDialog({ title: "Keys", body: [el("table", { class: "keys" }, el("tbody", {}, rows))] });
}

window.addEventListener("hashchange", follow);
follow();
