// Numbers, sizes and times as people read them. What is cut short here is whole in a tooltip.

const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MULTIPLES = [["k", 1e3], ["M", 1e6], ["G", 1e9], ["T", 1e12]];
const STEPS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

export function count(value) {
  return NUMBER.format(Math.round(value));
}

/** A number in few digits: 0.4, 1,234, 12.3 k, 4.56 M. */
export function short(value) {
  const size = Math.abs(value);
  if (size < 9.95 && value % 1) return value.toFixed(size < 0.095 ? 2 : 1);
  if (size < 9_999.5) return count(value);
  const [unit, each] = MULTIPLES.find(([, most]) => size < most * 999.95) ?? MULTIPLES[3];
  return `${digits(value / each)} ${unit}`;
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

export function bytes(value) {
  let number = value;
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count(number) : digits(number)} ${UNITS[unit]}`;
}

export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : many}`;
}

/** Seconds as 87 us, 1.25 ms, 3.20 s, 4 min, 2 d 3 h. */
export function duration(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1000)} ms`;
  if (seconds < 60) return `${digits(seconds)} s`;
  return span(seconds);
}

/** Whole seconds in at most two units. */
export function span(seconds) {
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [unit, size] of STEPS) {
    const number = Math.floor(rest / size);
    if (number || (unit === "s" && !parts.length)) parts.push(`${number} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
    rest -= number * size;
  }
  return parts.join(" ");
}

/** How long ago, in one unit. */
export function ago(micros, now = Date.now() * 1000) {
  if (micros === null || micros === undefined) return "never";
  const seconds = Math.max(0, (now - micros) / 1e6);
  if (seconds < 1.5) return "now";
  const [unit, size] = STEPS.find(([, each]) => seconds >= each) ?? STEPS[3];
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

/** 14:03:07 of today, 2026-01-31 14:03:07 otherwise; in the reader's own zone. */
export function moment(micros) {
  const date = new Date(micros / 1000);
  if (Number.isNaN(date.getTime())) return instant(micros);
  const clock = date.toTimeString().slice(0, 8);
  return date.toDateString() === new Date().toDateString() ? clock : `${day(date)} ${clock}`;
}

export function clock(micros) {
  return new Date(micros / 1000).toTimeString().slice(0, 8);
}

function day(date) {
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** In full, with the zone: for tooltips. A record may have a time that no calendar has. */
export function instant(micros) {
  const date = new Date(micros / 1000);
  return Number.isNaN(date.getTime()) ? `${micros} µs since 1970` : date.toISOString();
}

export function percent(share) {
  return `${share < 0.0995 && share > 0 ? (share * 100).toFixed(1) : Math.round(share * 100)} %`;
}

/** Without zeros at the end of a fraction: 2.5 k for 2.50 k, 1 MiB for 1.00 MiB. */
export function trimmed(text) {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** How long a topic's records stay, in words: 7 d, 10 GiB; forever. */
export function retentionWords({ age_ms: age, bytes: size, records }) {
  const parts = [];
  if (age !== null) parts.push(age % 1000 ? `${count(age)} ms` : span(age / 1000));
  if (size !== null) parts.push(trimmed(bytes(size)));
  if (records !== null) parts.push(`${trimmed(short(records))} ${records === 1 ? "record" : "records"}`);
  return parts.length ? parts.join(", ") : "forever";
}
