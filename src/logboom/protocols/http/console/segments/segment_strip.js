// The segments of a log side by side, as wide as they are large. One stop of the Tab key; arrows go from one to the next.

import { el, keyed, set, setText } from "../page/dom.js";
import { bytes, count, plural, span } from "../text/format.js";

const BARS_MAX = 150;

export class SegmentStrip {
  /** `chosen(segment)` is told which one was clicked: the newest of those behind the bar. */
  constructor(chosen) {
    this.chosen = chosen;
    this.bars = el("div", { class: "bars", role: "group", "aria-label": "Segments, oldest first" });
    this.words = el("p", { class: "pointed" });
    this.merged = el("span", { class: "quiet" });
    const states = ["sealed", "active", "damaged"].map((state) => el("span", { class: state }, el("i", { "aria-hidden": "true" }), state));
    this.element = el("div", { class: "strip" }, this.bars, this.words, el("p", { class: "legend" }, states, this.merged));
    this.selected = null;
    this.bars.addEventListener("keydown", (event) => this.walk(event));
    for (const type of ["pointerover", "focusin"]) this.bars.addEventListener(type, (event) => this.point(event.target.closest("button")));
    this.bars.addEventListener("pointerleave", () => this.point(null));
  }

  show(segments, now) {
    const groups = group(segments, BARS_MAX);
    const total = segments.reduce((sum, segment) => sum + segment.size_bytes, 0);
    keyed(this.bars, groups, (each) => each.key, (each) => this.make(each), (bar, each) => {
      bar.group = each;
      set(bar, "class", each.state);
      set(bar, "aria-label", describe(each, now));
      bar.style.flexGrow = String(Math.max(each.size, total / 5_000, 1));
      set(bar, "aria-current", this.isSelected(each) && "true");
    });
    const one = groups.length < segments.length;
    setText(this.merged, one ? `${count(segments.length)} segments in ${count(groups.length)} bars: neighbours are drawn together` : "");
    this.keepStop();
    this.say();
  }

  make() {
    return el("button", { type: "button", tabindex: "-1", onclick: (event) => this.chosen(event.currentTarget.group.segments.at(-1)) });
  }

  select(segment) {
    this.selected = segment.first_seqno;
    for (const bar of this.bars.children) set(bar, "aria-current", this.isSelected(bar.group) && "true");
    this.keepStop();
    this.say();
  }

  isSelected({ segments }) {
    return segments.some(({ first_seqno }) => first_seqno === this.selected);
  }

  /** Which bar the Tab key comes to: the one with the focus, the selected one, or the newest. */
  keepStop() {
    const bars = [...this.bars.children];
    const stop = bars.find((bar) => bar === document.activeElement) ?? bars.find((bar) => this.isSelected(bar.group)) ?? bars.at(-1);
    for (const bar of bars) set(bar, "tabindex", bar === stop ? "0" : "-1");
  }

  walk(event) {
    const bar = event.target.closest("button");
    const { firstElementChild: Home, lastElementChild: End } = this.bars;
    const to = { ArrowLeft: bar?.previousElementSibling, ArrowRight: bar?.nextElementSibling, Home, End }[event.key];
    if (!to) return;
    event.preventDefault();
    to.focus();
    this.keepStop();
  }

  point(bar) {
    this.pointed = bar;
    this.say();
  }

  say() {
    const bars = [...this.bars.children];
    const bar = (this.pointed?.isConnected && this.pointed) || bars.find((each) => this.isSelected(each.group));
    setText(this.words, bar ? capital(bar.getAttribute("aria-label")) : "Point at a segment, or choose one");
    set(this.words, "class", bar ? "pointed" : "pointed quiet");
  }
}

/** At most `most` bars, oldest first: the active segment by itself, of the others the same number in each. */
function group(segments, most) {
  const each = Math.ceil(Math.max(1, segments.length - 1) / (most - 1));
  const groups = [];
  for (const segment of segments) {
    const last = groups.at(-1);
    if (last && segment.sealed && last.length < each) last.push(segment);
    else groups.push([segment]);
  }
  return groups.map((some) => ({
    key: some[0].first_seqno,
    segments: some,
    size: some.reduce((sum, { size_bytes }) => sum + size_bytes, 0),
    state: stateOf(some.find(({ damage }) => damage) ?? some[0]),
  }));
}

export function stateOf(segment) {
  if (segment.damage) return "damaged";
  return segment.sealed ? "sealed" : "active";
}

export function seqnosOf(first, last) {
  const from = first.first_seqno;
  const until = last.next_seqno - 1;
  if (until < from) return "no records";
  return until === from ? `seqno ${count(from)}` : `seqnos ${count(from)} to ${count(until)}`;
}

function describe({ segments, size, state }, now) {
  const last = segments.at(-1);
  const parts = [seqnosOf(segments[0], last), bytes(size), state];
  if (last.newest !== null) parts.push(`${span((now - last.newest) / 1e6)} old`);
  if (segments.length > 1) parts.unshift(plural(segments.length, "segment"));
  return parts.join(", ");
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
