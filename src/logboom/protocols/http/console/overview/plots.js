// What the node did in the last ten minutes: records, bytes, and how long things took.

import { Plot, binaryCeiling, byTens, fromZero, niceCeiling } from "../page/plot.js";
import { bytes, count, duration, short } from "../text/format.js";

const SPAN = 600e6;
const GAP = 3;
const AHEAD = 5e6;
const QUIET = "no traffic yet";
const RATES = ["records_in", "records_out", "bytes_in", "bytes_out"];
const TIMES = ["append", "sync", "read"];

/**
 * The samples of the last minutes, in columns of the same length. A node that was started anew leaves a gap; where its clock
 * went back, what was after that goes.
 */
export class Samples {
  at = [];
  columns = Object.fromEntries([...RATES, ...TIMES, ...TIMES.map(half)].map((name) => [name, []]));

  /** Samples taken after this are missing; 0 asks for all, also where the node's clock is behind what is here. */
  since(now) {
    const last = this.at[this.at.length - 1] ?? 0;
    if (last <= now + AHEAD) return last;
    this.keep(() => false);
    return 0;
  }

  take(history) {
    history.at.forEach((at, number) => {
      this.keep((one) => one < at);
      const last = this.at[this.at.length - 1];
      if (at - last > GAP * history.interval_ms * 1000) this.push(last + 1, () => null);
      this.push(at, (name) => valueOf(history, name, number));
    });
    const oldest = this.at[this.at.length - 1] - SPAN;
    this.keep((at) => at >= oldest);
  }

  push(at, valueFor) {
    this.at.push(at);
    for (const [name, values] of Object.entries(this.columns)) values.push(valueFor(name));
  }

  keep(isKept) {
    if (this.at.every(isKept)) return;
    const kept = this.at.map(isKept);
    for (const [name, values] of Object.entries(this.columns)) this.columns[name] = values.filter((_, number) => kept[number]);
    this.at = this.at.filter((_, number) => kept[number]);
  }
}

function half(name) {
  return `${name}_p50`;
}

function valueOf(history, name, number) {
  if (RATES.includes(name)) return history[name][number];
  return name.endsWith("_p50") ? history[name.slice(0, -4)].p50[number] : history[name].p99[number];
}

/** Powers of ten stay in seconds: 100 s is no 1 min 40 s. */
function mark(seconds) {
  return seconds < 60 ? duration(seconds) : `${count(seconds)} s`;
}

/** The three plots; `draw(samples)` shows them all. */
export function makePlots() {
  const records = new Plot({
    title: "Records", unit: "per second", format: short, scale: fromZero(niceCeiling, 10), nothing: QUIET,
    series: [{ name: "in", label: "In" }, { name: "out", label: "Out" }],
  });
  const sizes = new Plot({
    title: "Bytes", unit: "per second", format: bytes, scale: fromZero(binaryCeiling, 1024), nothing: QUIET,
    series: [{ name: "in", label: "In" }, { name: "out", label: "Out" }],
  });
  const latency = new Plot({
    title: "Latency", unit: "p99", format: duration, mark, scale: byTens(1e-4, 1e-1), nothing: QUIET,
    series: [["append", "Produce"], ["sync", "Sync"], ["read", "Read"]]
      .map(([name, label]) => ({ name, label, also: { name: half(name), label: "p50" } })),
  });
  const draw = ({ at, columns }) => {
    records.draw(at, { in: columns.records_in, out: columns.records_out });
    sizes.draw(at, { in: columns.bytes_in, out: columns.bytes_out });
    latency.draw(at, columns);
  };
  return { elements: [records.element, sizes.element, latency.element], draw };
}
