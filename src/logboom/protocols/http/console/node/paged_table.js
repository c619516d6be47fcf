// A table of which the node gives a page at a time: to search, to sort and to turn over is to ask the node again.

import { el, keyed, set, setText } from "../page/dom.js";
import { count } from "../text/format.js";
import { poll } from "./api.js";

const PAGE = 50;
const TYPING_MS = 200;

/**
 * A region with a table.
 *
 * `columns` are {label, name, isNumber?, meaning?, sort?, order?}, the last two what the node sorts by and which way that
 * is; `sort` is where it begins. `ask({prefix, sort, offset, limit})` gives {items, total}. `make(row)` gives the content
 * of a row's cells, `fill(row, item)` makes it that of an item. `search` is the name of a field that asks for a prefix.
 * `none(prefix)` is what is said where there is nothing.
 */
export class PagedTable {
  constructor({ label, columns, sort, keyOf, make, fill, ask, every, search, none, shown, signal, failed }) {
    Object.assign(this, { columns, keyOf, make, fill, ask, none, shown, signal });
    this.total = null;
    this.why = "";
    this.wanted = { prefix: "", sort, page: 1 };
    this.answered = null;
    this.build(label, search);
    this.refresh = poll(() => this.load(), every, signal, failed);
  }

  build(label, search) {
    this.note = el("span", { class: "quiet" });
    this.obstacle = el("p", { class: "help", hidden: true });
    this.heads = this.columns.map((column) => this.makeHead(column));
    this.rows = el("tbody", { role: "rowgroup" });
    this.table = el("table", { class: `list paged of-${label.toLowerCase()}`, role: "table", "aria-label": label },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, this.heads)), this.rows);
    this.nothing = el("p", { class: "calm", role: search && "status", hidden: true });
    this.where = el("span");
    this.before = el("button", { type: "button", "aria-label": `Previous page of ${label.toLowerCase()}`, text: "‹", onclick: () => this.turn(-1) });
    this.after = el("button", { type: "button", "aria-label": `Next page of ${label.toLowerCase()}`, text: "›", onclick: () => this.turn(1) });
    this.foot = el("footer", { hidden: true }, this.where, el("div", { class: "buttons" }, this.before, this.after));
    this.element = el("section", { class: "card paged", "aria-label": label, hidden: true },
      el("header", {}, el("h2", { text: label }), this.note, search && el("div", { class: "end search" }, this.makeSearch(search))),
      this.obstacle, el("div", { class: "fit" }, this.table), this.nothing, this.foot);
  }

  makeHead({ label, name, isNumber, meaning, sort }) {
    const words = sort ? el("button", { type: "button", class: "sort", text: label, onclick: () => this.want({ sort, page: 1 }) })
      : el("span", { class: name === "actions" && "unseen", text: label });
    return el("th", { scope: "col", role: "columnheader", class: isNumber ? `${name} num` : name, title: meaning }, words);
  }

  makeSearch(words) {
    const input = el("input", { type: "search", placeholder: "Name begins with…", "aria-label": words, maxlength: 249, "data-search": true, autocomplete: "off", spellcheck: "false" });
    let timer = null;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.want({ prefix: input.value.trim(), page: 1 }), TYPING_MS);
    });
    this.signal.addEventListener("abort", () => clearTimeout(timer));
    return input;
  }

  turn(pages) {
    this.want({ page: this.wanted.page + pages });
  }

  want(change) {
    this.wanted = { ...this.wanted, ...change };
    this.refresh();
  }

  /** Asks until the answer is to what is wanted by then. */
  async load() {
    for (;;) {
      const wanted = this.wanted;
      const { prefix, sort, page } = wanted;
      const { items, total } = await this.ask({ prefix, sort, offset: (page - 1) * PAGE, limit: PAGE });
      const last = Math.max(1, Math.ceil(total / PAGE));
      if (wanted !== this.wanted) continue;
      if (page <= last) return this.show(items, total, last);
      this.wanted = { ...wanted, page: last };
    }
  }

  show(items, total, last) {
    const { prefix, sort, page } = this.wanted;
    this.total = total;
    this.columns.forEach((column, at) => set(this.heads[at], "aria-sort", column.sort === sort ? column.order : null));
    keyed(this.rows, this.settled(items), this.keyOf, () => this.makeRow(), (row, item) => this.fillRow(row, item));
    this.table.hidden = total === 0;
    this.nothing.hidden = total > 0;
    setText(this.nothing, total === 0 && this.none(prefix));
    setText(this.note, total ? count(total) : "");
    const first = (page - 1) * PAGE;
    setText(this.where, last > 1 ? `${count(first + 1)}–${count(first + items.length)} of ${count(total)}` : "");
    this.foot.hidden = last === 1;
    this.before.disabled = page <= 1;
    this.after.disabled = page >= last;
    this.shown();
  }

  /** While somebody points at a row it keeps its place, as long as the rows are the same ones. */
  settled(items) {
    const places = new Map([...this.rows.children].map((row, place) => [row.key, place]));
    const isSame = items.length === places.size && items.every((item) => places.has(this.keyOf(item)));
    const isAsked = this.answered !== this.wanted;
    this.answered = this.wanted;
    if (!isSame || isAsked || !this.rows.matches(":hover")) return items;
    return items.toSorted((one, other) => places.get(this.keyOf(one)) - places.get(this.keyOf(other)));
  }

  makeRow() {
    const row = el("tr", { role: "row" });
    const contents = this.make(row);
    row.append(...this.columns.map(({ label, name, isNumber }, at) =>
      el("td", { role: "cell", class: isNumber ? `${name} num` : name, "data-label": label }, contents[at])));
    return row;
  }

  fillRow(row, item) {
    row.item = item;
    this.fill(row, item);
  }

  /** Why nothing can be done to any of the rows; "" where it can. */
  setObstacle(why) {
    this.why = why;
    setText(this.obstacle, why);
    this.obstacle.hidden = why === "";
    for (const row of this.rows.children) this.fill(row, row.item);
  }
}

/** What stands in a cell or a part of one. */
export function fillCell(cell, text, title = null, isQuiet = false) {
  setText(cell, text);
  set(cell, "title", title);
  cell.classList.toggle("quiet", isQuiet);
}
