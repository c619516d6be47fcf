// Msgpack as the JSON of the same values: numbers keep every digit, bytes are base64, what JSON has no name for is text.

const DEPTH_MAX = 200;
const TIMESTAMP = -1;
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** JSON text; null where the bytes are not one msgpack value, or one that is nested too deeply. */
export function jsonOfMsgpack(bytes) {
  const reader = new MsgpackReader(bytes);
  try {
    const text = reader.next(0);
    return reader.at === bytes.length ? text : null;
  } catch {
    return null;
  }
}

class MsgpackReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  /** The JSON of the value that begins here. Throws where it does not end. */
  next(depth) {
    if (depth > DEPTH_MAX) throw new RangeError("nested too deeply");
    const kind = this.view.getUint8(this.at);
    this.at += 1;
    if (kind < 0x80) return String(kind);
    if (kind >= 0xe0) return String(kind - 0x100);
    if (kind < 0x90) return this.map(kind & 0x0f, depth);
    if (kind < 0xa0) return this.array(kind & 0x0f, depth);
    if (kind < 0xc0) return this.text(kind & 0x1f);
    return this.long(kind, depth);
  }

  long(kind, depth) {
    if (kind === 0xc0) return "null";
    if (kind === 0xc2) return "false";
    if (kind === 0xc3) return "true";
    if (kind <= 0xc6 && kind >= 0xc4) return JSON.stringify(base64Of(this.take(this.size(kind - 0xc4))));
    if (kind <= 0xc9 && kind >= 0xc7) return this.extension(this.size(kind - 0xc7));
    if (kind === 0xca) return numberText(this.number("getFloat32", 4));
    if (kind === 0xcb) return numberText(this.number("getFloat64", 8));
    if (kind <= 0xce && kind >= 0xcc) return String(this.size(kind - 0xcc));
    if (kind === 0xcf) return String(this.number("getBigUint64", 8));
    if (kind >= 0xd0 && kind <= 0xd3) return String(this.number(["getInt8", "getInt16", "getInt32", "getBigInt64"][kind - 0xd0], 1 << (kind - 0xd0)));
    if (kind >= 0xd4 && kind <= 0xd8) return this.extension(1 << (kind - 0xd4));
    if (kind >= 0xd9 && kind <= 0xdb) return this.text(this.size(kind - 0xd9));
    if (kind === 0xdc || kind === 0xdd) return this.array(this.size(kind - 0xdb), depth);
    if (kind === 0xde || kind === 0xdf) return this.map(this.size(kind - 0xdd), depth);
    throw new RangeError("no msgpack");
  }

  number(read, size) {
    const found = this.view[read](this.at);
    this.at += size;
    return found;
  }

  /** A number of 1, 2 or 4 bytes. */
  size(width) {
    return this.number(["getUint8", "getUint16", "getUint32"][width], 1 << width);
  }

  take(size) {
    if (this.at + size > this.bytes.length) throw new RangeError("ends too soon");
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }

  text(size) {
    return JSON.stringify(strict.decode(this.take(size)));
  }

  /** No more entries than there are bytes. */
  check(count) {
    if (count > this.bytes.length - this.at) throw new RangeError("ends too soon");
    return count;
  }

  array(count, depth) {
    const parts = [];
    for (let left = this.check(count); left; left -= 1) parts.push(this.next(depth + 1));
    return `[${parts.join(",")}]`;
  }

  map(count, depth) {
    const parts = [];
    for (let left = this.check(count); left; left -= 1) {
      const name = this.next(depth + 1);
      parts.push(`${name.startsWith('"') ? name : JSON.stringify(name)}:${this.next(depth + 1)}`);
    }
    return `{${parts.join(",")}}`;
  }

  extension(size) {
    const type = this.number("getInt8", 1);
    const content = this.take(size);
    const moment = type === TIMESTAMP ? timeText(content) : null;
    return moment === null ? `{"extension":${type},"base64":${JSON.stringify(base64Of(content))}}` : JSON.stringify(moment);
  }
}

function numberText(number) {
  return Number.isFinite(number) ? String(number) : "null";
}

function base64Of(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

/** ISO 8601 with nanoseconds where there are some; null where the calendar ends. */
function timeText(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  let [seconds, nanoseconds] = [0n, 0];
  if (content.length === 4) seconds = BigInt(view.getUint32(0));
  else if (content.length === 8) [seconds, nanoseconds] = [view.getBigUint64(0) & 0x3ffffffffn, Number(view.getBigUint64(0) >> 34n)];
  else if (content.length === 12) [nanoseconds, seconds] = [view.getUint32(0), view.getBigInt64(4)];
  else return null;
  const moment = new Date(Number(seconds) * 1000);
  if (Number.isNaN(moment.getTime())) return null;
  const rest = nanoseconds ? `.${String(nanoseconds).padStart(9, "0")}` : "";
  return moment.toISOString().replace(/\.000Z$/, `${rest}Z`);
}
