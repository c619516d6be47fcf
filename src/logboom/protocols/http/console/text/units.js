// Sizes and durations as people write them, 10 GiB and 7 d, and as the node counts them: bytes and milliseconds.
//
// Whole numbers are BigInt here: a limit may be larger than what a JavaScript number holds exactly.

const BINARY = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["kB", "MB", "GB", "TB", "PB", "EB"];

function powers(units, base) {
  return units.map((unit, number) => [unit, base ** BigInt(number + 1)]);
}

export const BYTES = {
  noun: "a size",
  example: "4096, 64 MiB or 1.5 GB",
  units: new Map([["B", 1n], ...powers(BINARY, 1024n), ...powers(DECIMAL, 1000n)]),
  shown: BINARY,
  least: "B",
};

export const DURATION = {
  noun: "a duration",
  example: "250 ms, 30 s, 5 min, 12 h or 7 d",
  units: new Map([["ms", 1n], ["s", 1_000n], ["min", 60_000n], ["m", 60_000n], ["h", 3_600_000n], ["d", 86_400_000n], ["w", 604_800_000n]]),
  shown: ["s", "min", "h", "d"],
  least: "ms",
};

export const NUMBER = { noun: "a whole number", example: "100,000", units: new Map(), shown: [], least: "" };

const PART = /(\d{1,3}(?:,\d{3})+(?!\d)|\d[\d_]*)(?:\.(\d+))?\s*([A-Za-z]*)/y;

/** What a text means: 1.5 GiB, 1 h 30 min, 100,000. A plain number is in the least unit. Throws in words. */
export function parseAmount(text, kind) {
  const wrong = () => new Error(`“${text.trim().slice(0, 40)}” is not ${kind.noun}: write it as ${kind.example}`);
  const whole = text.trim();
  if (whole === "" || whole.length > 60) throw wrong();
  let total = 0n;
  let plain = false;
  PART.lastIndex = 0;
  while (PART.lastIndex < whole.length) {
    const found = PART.exec(whole);
    if (found === null) throw wrong();
    const size = sizeOf(found[3], kind);
    if (size === undefined || plain || (found[3] === "" && found.index > 0)) throw wrong();
    const amount = scale(found[1], found[2] ?? "", size);
    if (amount === null) throw wrong();
    total += amount;
    plain = found[3] === "";
    while (whole[PART.lastIndex] === " ") PART.lastIndex += 1;
  }
  return total;
}

function sizeOf(unit, kind) {
  if (unit === "") return 1n;
  for (const [name, size] of kind.units) if (name.toLowerCase() === unit.toLowerCase()) return size;
  return undefined;
}

/** So many times `size`; null where that is no whole number. */
function scale(digits, decimals, size) {
  const number = BigInt(digits.replace(/[_,]/g, "") + decimals) * size;
  const divisor = 10n ** BigInt(decimals.length);
  return number % divisor === 0n ? number / divisor : null;
}

/** The shortest exact way to write it: 10 GiB, 7 d, 100,000. */
export function writeAmount(value, kind) {
  const amount = BigInt(value);
  for (const unit of [...kind.shown].reverse()) {
    const size = kind.units.get(unit);
    if (amount !== 0n && amount % size === 0n) return `${grouped(amount / size)} ${unit}`;
  }
  return `${grouped(amount)} ${kind.least}`.trim();
}

function grouped(amount) {
  return amount.toLocaleString("en");
}

/** JSON that keeps whole numbers whole, however large. */
export function encodeJson(value) {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(encodeJson).join(",")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}:${encodeJson(each)}`).join(",")}}`;
  }
  return JSON.stringify(value);
}
