// The region "Topics": search, order and page are in the address, the node does them, and only a page is ever asked for.

import { get, poll } from "../node/api.js";
import { el, setText } from "../page/dom.js";
import { count } from "../text/format.js";
import { FirstSteps } from "./first_steps.js";
import { createTopic } from "./new_topic.js";
import { TopicsTable } from "./topics_table.js";

const PAGE = 50;
const EVERY_MS = 2_000;
const TYPING_MS = 150;
const BUSIEST = "records_in";
const SORTS = ["name", "records_in", "bytes_in", "records_out", "bytes_out", "size", "records", "newest", "lag"];

/** What the address asks for; what it does not make sense to ask for is left out. Without an order the busiest come first. */
function parse(query) {
  const isSorted = SORTS.includes(query.get("sort"));
  const sort = isSorted ? query.get("sort") : BUSIEST;
  const descending = isSorted ? query.get("descending") === "true" : true;
  const page = Math.max(1, Math.min(1e9, Number.parseInt(query.get("page") ?? "1", 10) || 1));
  return { search: query.get("search") ?? "", sort, descending, page, internal: query.get("internal") === "true" };
}

function address({ search, sort, descending, page, internal }) {
  const query = new URLSearchParams();
  if (search) query.set("search", search);
  if (sort !== BUSIEST || !descending) query.set("sort", sort);
  if (query.has("sort") && descending) query.set("descending", "true");
  if (internal) query.set("internal", "true");
  if (page > 1) query.set("page", page);
  return query.size ? `#/?${query}` : "#/";
}

/** Whether there is no topic at all, and nothing hides one. */
function isBare({ matched }, { search, internal }) {
  return matched === 0 && search === "" && !internal;
}

export class Topics {
  constructor(query, signal, arrived, failed) {
    this.wanted = parse(query);
    this.build(signal);
    this.showWanted();
    this.refresh = poll(() => this.ask(signal, arrived), EVERY_MS, signal, failed);
  }

  build(signal) {
    this.search = el("input", {
      type: "search", placeholder: "Search", "aria-label": "Search topics", maxlength: 249, "data-search": true, autocomplete: "off", spellcheck: "false",
    });
    this.internal = el("input", { type: "checkbox" });
    this.table = new TopicsTable((sort) => this.sortBy(sort));
    const all = el("button", { type: "button", class: "quiet", text: "Show all", onclick: () => this.go({ search: "", page: 1 }) });
    this.none = el("p", { class: "empty", hidden: true }, el("span", {}), " ", all);
    this.where = el("span", { class: "where", role: "status" });
    this.before = el("button", { type: "button", "aria-label": "Previous page", text: "‹", onclick: () => this.go({ page: this.wanted.page - 1 }) });
    this.after = el("button", { type: "button", "aria-label": "Next page", text: "›", onclick: () => this.go({ page: this.wanted.page + 1 }) });
    this.steps = new FirstSteps();
    this.tools = [this.search, el("label", { class: "check" }, this.internal, " Internal topics")];
    this.foot = el("footer", {}, this.where, el("div", { class: "buttons" }, this.before, this.after));
    this.element = el("section", { class: "card topics", "aria-label": "Topics" },
      el("header", {}, el("h2", { text: "Topics" }), this.tools, el("button", { type: "button", class: "first end", text: "New topic", onclick: createTopic })),
      this.steps.element, this.table.element, this.none, this.foot);
    this.listen(signal);
  }

  listen(signal) {
    let timer = null;
    signal.addEventListener("abort", () => clearTimeout(timer));
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.go({ search: this.search.value.trim(), page: 1 }, this.wanted.search !== ""), TYPING_MS);
    });
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      clearTimeout(timer);
      this.go({ search: this.search.value.trim(), page: 1 }, this.wanted.search !== "");
    });
    this.internal.addEventListener("change", () => this.go({ internal: this.internal.checked, page: 1 }));
  }

  sortBy(sort) {
    const descending = sort === this.wanted.sort ? !this.wanted.descending : sort !== "name";
    this.go({ sort, descending, page: 1 });
  }

  /** Change the address, which comes back as `move`; `isSame` where it is no step that one goes back to. */
  go(change, isSame = false) {
    const next = address({ ...this.wanted, ...change });
    if (next === address(this.wanted)) return;
    if (isSame) location.replace(next);
    else location.hash = next;
  }

  move(query) {
    this.wanted = parse(query);
    this.showWanted();
    this.refresh();
  }

  showWanted() {
    if (this.search.value.trim() !== this.wanted.search) this.search.value = this.wanted.search;
    this.internal.checked = this.wanted.internal;
  }

  /** Asks until the answer is to what is wanted by then. */
  async ask(signal, arrived) {
    for (;;) {
      const wanted = this.wanted;
      const { search, sort, descending, internal } = wanted;
      const activity = await get("/activity/topics", { search, sort, descending, internal, offset: (wanted.page - 1) * PAGE, limit: PAGE }, { signal });
      if (isBare(activity, wanted)) await this.steps.prepare();
      if (wanted === this.wanted) {
        this.show(activity, wanted);
        return arrived();
      }
    }
  }

  show(activity, wanted) {
    const { matched, topics } = activity;
    const pages = Math.max(1, Math.ceil(matched / PAGE));
    if (wanted.page > pages) return this.go({ page: pages }, true);
    const isFirst = isBare(activity, wanted);
    this.table.isAsked = this.shown !== wanted;
    this.shown = wanted;
    this.table.show(activity, wanted);
    for (const part of [...this.tools, this.foot]) part.hidden = isFirst;
    this.steps.element.hidden = !isFirst;
    this.table.element.hidden = matched === 0;
    this.none.hidden = matched > 0 || isFirst;
    setText(this.none.firstElementChild, wanted.search ? `No topic has “${wanted.search}” in its name.` : "There are no topics.");
    const first = (wanted.page - 1) * PAGE;
    setText(this.where, matched ? `${count(first + 1)}–${count(first + topics.length)} of ${count(matched)}` : "0 of 0");
    this.before.disabled = wanted.page <= 1;
    this.after.disabled = wanted.page >= pages;
    return undefined;
  }
}
