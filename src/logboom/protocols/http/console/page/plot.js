// Lines over the last minutes, and sparklines. Drawn as SVG in the size they have: colours come from the style sheet.

import { clock, trimmed } from "../text/format.js";
import { el, set, setText, svg } from "./dom.js";

const PAD = { top: 8, right: 6, bottom: 20, left: 54 };
const HEIGHT = 134;
const DECADES_MAX = 4;
const USUAL = 0.95;
const USUAL_MIN = 20;
const SPIKE = 4;
const WORDS_WIDTH = 64;

/**
 * A plot with a legend. `series` are {name, label, show?, also?}: `name` is its class, `show` makes words of a value, `also`
 * is {name, label} of a column that is told where one points. `mark` makes words of a value at the axis, where there is
 * little room. `scale` is one of the functions below. `nothing` stands in the plot as long as all values are null or 0.
 * `draw(at, columns)` takes times in microseconds and a list of values (or nulls) for each series by name.
 */
export class Plot {
  constructor({ title, unit = "", series, format, mark = format, span = 600e6, scale = fromZero(), nothing = "" }) {
    Object.assign(this, { title, series, format, mark, span, scale, at: [], columns: {}, pointer: null });
    this.paths = new Map(series.map(({ name }) => [name, svg("path", { class: `line ${name}` })]));
    this.area = svg("path", { class: `area ${series[0].name}` });
    this.grid = svg("g", { class: "grid" });
    this.over = svg("g", { class: "over" });
    this.cross = svg("line", { class: "cross", visibility: "hidden" });
    this.drawing = svg("svg", { class: "drawing", role: "img", height: HEIGHT }, this.grid, this.area, [...this.paths.values()], this.over, this.cross);
    this.tip = new Tip(series);
    this.nothing = el("p", { class: "nothing", hidden: true, text: nothing });
    this.values = new Map(series.map(({ name }) => [name, el("b", { text: "–" })]));
    const legend = series.map(({ name, label }) => el("li", { class: name }, el("i", { "aria-hidden": "true" }), `${label} `, this.values.get(name)));
    this.element = el("section", { class: "card plot", "aria-label": title },
      el("header", {}, el("h2", { text: title }), unit && el("span", { class: "unit", text: unit }), el("ul", { class: "legend" }, legend)),
      el("div", { class: "stage" }, this.drawing, this.nothing, this.tip.element));
    this.drawing.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.render()).observe(this.drawing);
  }

  draw(at, columns) {
    this.at = at;
    this.columns = columns;
    for (const { name } of this.series) setText(this.values.get(name), this.words(name, last(columns[name])));
    const said = this.series.map(({ name, label }) => `${label} ${this.words(name, last(columns[name]))}, at most ${this.words(name, highest(columns[name]))}`);
    set(this.drawing, "aria-label", `${this.title}: ${said.join("; ")}`);
    this.render();
  }

  words(name, value) {
    if (value === null || value === undefined) return "–";
    return (this.series.find((one) => one.name === name)?.show ?? this.format)(value);
  }

  render() {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const values = this.series.flatMap(({ name }) => this.columns[name] ?? []).filter((value) => value !== null && value !== undefined);
    const { ticks, share, most = Infinity } = this.scale(values);
    const end = this.at.length ? this.at[this.at.length - 1] : Date.now() * 1000;
    this.x = (at) => PAD.left + (1 - (end - at) / this.span) * (width - PAD.left - PAD.right);
    this.y = (value) => HEIGHT - PAD.bottom - share(value) * (HEIGHT - PAD.top - PAD.bottom);
    this.renderGrid(ticks, end, width);
    for (const [name, path] of this.paths) set(path, "d", this.line(this.columns[name] ?? []));
    set(this.area, "d", ticks[0] === 0 ? this.under(this.columns[this.series[0].name] ?? []) : "");
    this.renderOver(most);
    this.nothing.hidden = !this.nothing.textContent || values.some((value) => value > 0);
    this.point(this.pointer);
  }

  renderGrid(ticks, end, width) {
    const parts = ticks.flatMap((tick) => {
      const y = Math.round(this.y(tick)) + 0.5;
      const text = tick === 0 ? "0" : trimmed(this.mark(tick));
      return [svg("line", { x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }), svg("text", { x: PAD.left - 8, y: y + 4, "text-anchor": "end", text })];
    });
    const minutes = this.span / 60e6;
    const ends = [[0, "start", `${minutes} min ago`], [0.5, "middle", `${minutes / 2} min`], [1, "end", "now"]];
    for (const [share, anchor, text] of ends) {
      parts.push(svg("text", { x: this.x(end - this.span * (1 - share)), y: HEIGHT - 4, "text-anchor": anchor, text }));
    }
    this.grid.replaceChildren(...parts);
  }

  /** Where a spike goes beyond the scale it says how far; of several that are close together, the highest does. */
  renderOver(most) {
    const found = this.series.flatMap(({ name }) => spikes(this.columns[name] ?? [], most)
      .filter((number) => !this.isOut(this.at[number]))
      .map((number) => ({ name, x: this.x(this.at[number]), value: this.columns[name][number] })));
    found.sort((one, other) => other.value - one.value);
    const told = [];
    const parts = found.map(({ name, x, value }) => {
      const isFree = told.every((other) => Math.abs(other - x) > WORDS_WIDTH);
      if (isFree) told.push(x);
      const isRight = x > this.drawing.clientWidth / 2;
      const place = { x: isRight ? x - 7 : x + 7, y: 9, "text-anchor": isRight ? "end" : "start" };
      return svg("g", { class: name }, svg("path", { d: `M${x.toFixed(1)} 1l4 6h-8z` }), isFree && svg("text", { ...place, text: trimmed(this.words(name, value)) }));
    });
    this.over.replaceChildren(...parts);
  }

  line(values) {
    let path = "";
    let pen = "M";
    values.forEach((value, number) => {
      const at = this.at[number];
      if (value === null || value === undefined || this.isOut(at)) pen = "M";
      else {
        path += `${pen}${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`;
        if (pen === "M" && (values[number + 1] ?? null) === null) path += "h0.01";
        pen = "L";
      }
    });
    return path;
  }

  isOut(at) {
    return at < this.at[this.at.length - 1] - this.span;
  }

  /** What is below the line, piece by piece: there is nothing where there are no values. */
  under(values) {
    const pieces = [[]];
    values.forEach((value, number) => {
      if (value === null || value === undefined) pieces.push([]);
      else if (!this.isOut(this.at[number])) pieces[pieces.length - 1].push([this.x(this.at[number]).toFixed(1), this.y(value).toFixed(1)]);
    });
    const base = this.y(0).toFixed(1);
    return pieces.filter((piece) => piece.length > 1)
      .map((piece) => `M${piece[0][0]} ${base}L${piece.map(([x, y]) => `${x} ${y}`).join("L")}L${piece[piece.length - 1][0]} ${base}Z`).join("");
  }

  point(offset) {
    this.pointer = offset;
    if (offset === null || this.at.length === 0 || !this.x) {
      set(this.cross, "visibility", "hidden");
      this.tip.element.hidden = true;
      return;
    }
    const near = this.at.reduce((best, at, number) => (Math.abs(this.x(at) - offset) < Math.abs(this.x(this.at[best]) - offset) ? number : best), 0);
    const x = this.x(this.at[near]);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom, visibility: "visible" })) set(this.cross, name, value);
    this.tip.show(clock(this.at[near]), x, this.drawing.clientWidth, (name) => this.words(name, this.columns[name]?.[near]));
  }
}

/** What the values are where one points, beside the pointer. */
class Tip {
  constructor(series) {
    this.series = series;
    this.time = el("b");
    this.cells = new Map(series.map(({ name }) => [name, el("span")]));
    const rows = series.flatMap(({ name, label }) => [el("i", { class: name, "aria-hidden": "true" }), el("span", { text: label }), this.cells.get(name)]);
    this.element = el("div", { class: "tip", hidden: true }, this.time, rows);
  }

  show(time, x, width, words) {
    setText(this.time, time);
    for (const { name, also } of this.series) {
      setText(this.cells.get(name), also ? `${words(name)} · ${also.label} ${words(also.name)}` : words(name));
    }
    const isRight = x > width / 2;
    this.element.style.left = isRight ? "auto" : `${x + 10}px`;
    this.element.style.right = isRight ? `${width - x + 10}px` : "auto";
    this.element.hidden = false;
  }
}

/** A small line of a few numbers, of a fixed size; `label` says the same in words. */
export function sparkline(className = "in") {
  const path = svg("path", { class: `line ${className}` });
  const area = svg("path", { class: `area ${className}` });
  const drawing = svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img" }, area, path);
  drawing.draw = (values, label) => {
    set(drawing, "aria-label", label);
    const top = Math.max(1, ...values);
    set(path, "class", `line ${values.some((value) => value > 0) ? className : "idle"}`);
    const step = 100 / Math.max(1, values.length - 1);
    const points = values.map((value, number) => `${(number * step).toFixed(1)} ${(22 - (value / top) * 20).toFixed(1)}`);
    set(path, "d", points.length ? `M${points.join("L")}` : "M0 22L100 22");
    set(area, "d", points.length ? `M0 22L${points.join("L")}L100 22Z` : "");
  };
  return drawing;
}

/**
 * A scale from 0 to a round number; `least` is what it reaches at least. A few values that are far above all others do not
 * count: they are drawn at its end, `most`, and it is for the plot to say how high they are.
 */
export function fromZero(ceiling = niceCeiling, least = 0) {
  return (values) => {
    const all = highest(values) ?? 0;
    const usual = usualMost(values);
    const top = ceiling(Math.max(least, usual > 0 && all > SPIKE * ceiling(usual) ? usual : all));
    return { ticks: [0, top / 2, top], share: (value) => Math.min(1, value / top), most: top };
  };
}

/** What all but a few values stay below; 0 where there are too few to say, or most are nothing. */
function usualMost(values) {
  const some = values.filter((value) => value > 0).sort((one, other) => one - other);
  return some.length < USUAL_MIN || 4 * some.length < values.length ? 0 : some[Math.floor((some.length - 1) * USUAL)];
}

/** The numbers of the highest value of each run of values above this. */
function spikes(values, most) {
  const found = [];
  let best = null;
  values.forEach((value, number) => {
    if (value > most * 1.001) best = best === null || value > values[best] ? number : best;
    else if (best !== null) {
      found.push(best);
      best = null;
    }
  });
  return best === null ? found : [...found, best];
}

/** A scale of powers of ten, for what differs by orders of magnitude; `low` to `high` where there is nothing. */
export function byTens(low, high) {
  return (values) => {
    const some = values.filter((value) => value > 0);
    const least = some.length ? Math.floor(Math.log10(some.reduce((one, other) => Math.min(one, other))) + 1e-9) : Math.log10(low);
    const end = Math.max(least + 1, some.length ? Math.ceil(Math.log10(highest(some)) - 1e-9) : Math.log10(high));
    const step = Math.ceil((end - least) / DECADES_MAX);
    const first = end - Math.ceil((end - least) / step) * step;
    const ticks = [];
    for (let power = first; power <= end; power += step) ticks.push(10 ** power);
    return { ticks, share: (value) => Math.max(0, (Math.log10(Math.max(value, 1e-12)) - first) / (end - first)) };
  };
}

function last(values = []) {
  return values.length ? values[values.length - 1] : null;
}

function highest(values = []) {
  let most = null;
  for (const value of values) if (value !== null && value !== undefined && (most === null || value > most)) most = value;
  return most;
}

/** The next of 1, 2, 5, 10, 20, … at or above; so the scale changes seldom. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999);
}

/** The next power of two at or above: round in KiB, MiB, …, and so is its half. */
export function binaryCeiling(value) {
  return 2 ** Math.ceil(Math.log2(Math.max(2, value * 0.999)));
}
