// Bytes as people read them: text with what cannot be seen made visible, hex, and times to the microsecond.

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder("utf-8", { ignoreBOM: true });
const encoder = new TextEncoder();
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0" };
/** What takes no room, or moves what stands beside it. Joined emoji may stay joined. */
const JOINED = String.raw`(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\uFE0F])\u200D(?=\p{Extended_Pictographic})|(?<=\p{Emoji})\uFE0F`;
const UNSEEN = new RegExp(String.raw`(?!${JOINED})[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}\u2800]+`, "gu");

export const PREVIEW_CHARACTERS = 200;

/** Bytes as UTF-8; null where they are none. */
export function textOf(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

export function bytesOf(text) {
  return encoder.encode(text);
}

/** Bytes as UTF-8 with U+FFFD for what is none. */
export function looseTextOf(bytes) {
  return lenient.decode(bytes);
}

/** How long a UTF-8 sequence is that begins here; 0 where none does. */
function sequenceLength(bytes, at) {
  const lead = bytes[at];
  if (lead < 0x80) return 1;
  const length = lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
  if (!length || at + length > bytes.length) return 0;
  for (let next = 1; next < length; next += 1) if ((bytes[at + next] & 0xc0) !== 0x80) return 0;
  const second = bytes[at + 1];
  const isWrong = (lead === 0xe0 && second < 0xa0) || (lead === 0xed && second > 0x9f) || (lead === 0xf0 && second < 0x90) || (lead === 0xf4 && second > 0x8f);
  return isWrong ? 0 : length;
}

/** Bytes as runs of {text} and of {escape}: \xff for what is no UTF-8, \u202E for what cannot be seen. */
export function runsOf(bytes, keeps = "") {
  const runs = [];
  const flush = (from, until) => until > from && runs.push(...visibleRuns(lenient.decode(bytes.subarray(from, until)), keeps));
  let from = 0;
  for (let at = 0; at < bytes.length; ) {
    const length = sequenceLength(bytes, at);
    if (length) {
      at += length;
      continue;
    }
    flush(from, at);
    let until = at + 1;
    while (until < bytes.length && !sequenceLength(bytes, until)) until += 1;
    runs.push({ escape: Array.from(bytes.subarray(at, until), (byte) => `\\x${hexByte(byte)}`).join("") });
    from = at = until;
  }
  flush(from, bytes.length);
  return runs;
}

/** A text as runs of {text} and {escape}. Characters in `keeps` stay: line ends, where lines are shown. */
export function visibleRuns(text, keeps = "") {
  const runs = [];
  let from = 0;
  const add = (run) => run.text !== "" && runs.push(run);
  for (const match of text.matchAll(UNSEEN)) {
    add({ text: text.slice(from, match.index) });
    for (const character of match[0]) {
      const isKept = keeps.includes(character);
      const last = runs.at(-1);
      const shown = isKept ? character : escapeOf(character);
      const kind = isKept ? "text" : "escape";
      if (last && last[kind] !== undefined) last[kind] += shown;
      else runs.push({ [kind]: shown });
    }
    from = match.index + match[0].length;
  }
  add({ text: text.slice(from) });
  return runs;
}

function escapeOf(character) {
  const code = character.codePointAt(0);
  const hex = code.toString(16).toUpperCase();
  return NAMED[character] ?? (code < 0x100 ? `\\x${hexByte(code)}` : code > 0xffff ? `\\u{${hex}}` : `\\u${hex.padStart(4, "0")}`);
}

/** A text with nothing unseen in it, on one line. */
export function visible(text) {
  return plain(visibleRuns(text));
}

function plain(runs) {
  return runs.map((run) => run.text ?? run.escape).join("");
}

/** The beginning of a text, whole characters only; with … where there is more. */
export function cut(text, most = PREVIEW_CHARACTERS) {
  if (text.length <= most) return text;
  const isSplit = /[\uD800-\uDBFF]/.test(text[most - 1]);
  return `${text.slice(0, isSplit ? most - 1 : most)}…`;
}

/** A key or a header as JSON has it, a string or {base64}: as bytes. */
export function fieldBytes(field) {
  return typeof field === "string" ? bytesOf(field) : fromBase64(field.base64);
}

/** A key or a header for people: the beginning, as runs. */
export function fieldRuns(field, most = PREVIEW_CHARACTERS) {
  if (field === null || field === undefined) return [];
  if (typeof field === "string") return visibleRuns(cut(field, most));
  const bytes = fromBase64(field.base64.slice(0, Math.ceil(most / 3) * 4));
  const runs = runsOf(bytes.subarray(0, most));
  return field.base64.length * 3 > most * 4 ? [...runs, { text: "…" }] : runs;
}

export function fieldText(field, most = PREVIEW_CHARACTERS) {
  return plain(fieldRuns(field, most));
}

const TABLE = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

function hexByte(byte) {
  return TABLE[byte];
}

export function hexDigits(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 4096) parts.push(Array.from(bytes.subarray(at, at + 4096), hexByte).join(""));
  return parts.join("");
}

/** Lines of an offset, sixteen bytes and what is ASCII of them. */
export function hexDump(bytes, from, until) {
  const lines = [];
  for (let at = from; at < until; at += 16) {
    const row = bytes.subarray(at, Math.min(at + 16, until));
    const hex = Array.from(row, hexByte);
    const left = hex.slice(0, 8).join(" ").padEnd(23);
    const right = hex.slice(8).join(" ").padEnd(23);
    const ascii = Array.from(row, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${right}  ${ascii}`);
  }
  return lines.join("\n");
}

/** Hex digits as bytes; space between bytes is passed over. Throws where they are none. */
export function fromHex(text) {
  const digits = text.replace(/\s+|^0x/gi, "");
  if (!/^[0-9a-f]*$/i.test(digits)) throw new Error("Hex has the digits 0 to 9 and a to f only.");
  if (digits.length % 2) throw new Error("Hex has two digits for each byte: one is missing.");
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

/** Throws where it is no base64. Both alphabets are taken. */
export function fromBase64(text) {
  let found;
  try {
    found = atob(text.replace(/\s+/g, "").replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    throw new Error("This is no base64.");
  }
  return Uint8Array.from(found, (character) => character.charCodeAt(0));
}

export function toBase64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 8190) parts.push(btoa(String.fromCharCode(...bytes.subarray(at, at + 8190))));
  return parts.join("");
}

/** A record's time (RFC 3339, or microseconds where the calendar ends) in the reader's zone, microseconds kept. */
export function localTime(timestamp) {
  if (typeof timestamp !== "string") return timestamp === null ? "–" : `${timestamp} µs since 1970`;
  const date = new Date(timestamp);
  return `${localDay(date)} ${date.toTimeString().slice(0, 8)}${timestamp.match(/\.\d+/)?.[0] ?? ""}`;
}

export function localDay(date) {
  const two = (number) => String(number).padStart(2, "0");
  return `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
