// JSON as it stands in its text: found by position, never made into values. So numbers keep every digit, names may come
// twice, and only what is looked at costs anything. Nothing here recurses, however deep the text is nested.

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const BACKSLASH = 92;
const OPEN_ARRAY = 91;
const CLOSE_ARRAY = 93;
const OPEN_OBJECT = 123;
const CLOSE_OBJECT = 125;
const INDENT_MAX = 64;
const WORDS = ["true", "false", "null"];
const ESCAPES = new Set([...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0)));

function isSpace(code) {
  return code === 32 || code === 10 || code === 13 || code === 9;
}

function isDigit(code) {
  return code >= 48 && code <= 57;
}

export function skipSpace(text, at) {
  let here = at;
  while (isSpace(text.charCodeAt(here))) here += 1;
  return here;
}

/** What is wrong with a text that should be JSON: {at, expected}; null where nothing is. */
export function findFault(text) {
  const closers = [];
  let at = skipSpace(text, 0);
  for (;;) {
    const code = text.charCodeAt(at);
    let end;
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      const closer = code + 2;
      at = skipSpace(text, at + 1);
      if (text.charCodeAt(at) !== closer) {
        closers.push(closer);
        if (closer === CLOSE_OBJECT) at = endOfName(text, at);
        if (at < 0) return { at: ~at, expected: "a name in quotes and a colon" };
        continue;
      }
      end = at + 1;
    } else end = endOfScalar(text, at);
    if (end < 0) return { at: ~end, expected: "a value" };
    at = skipSpace(text, end);
    while (closers.length && text.charCodeAt(at) === closers[closers.length - 1]) {
      closers.pop();
      at = skipSpace(text, at + 1);
    }
    if (!closers.length) return at === text.length ? null : { at, expected: "the end" };
    const closer = closers[closers.length - 1];
    if (text.charCodeAt(at) !== COMMA) return { at, expected: `a comma or ${String.fromCharCode(closer)}` };
    at = skipSpace(text, at + 1);
    if (closer === CLOSE_OBJECT) at = endOfName(text, at);
    if (at < 0) return { at: ~at, expected: "a name in quotes and a colon" };
  }
}

/** Where the value behind a name begins; where the fault is, inverted, where there is none. */
function endOfName(text, at) {
  if (text.charCodeAt(at) !== QUOTE) return ~at;
  const end = endOfString(text, at);
  if (end < 0) return end;
  const colon = skipSpace(text, end);
  return text.charCodeAt(colon) === COLON ? skipSpace(text, colon + 1) : ~colon;
}

function endOfScalar(text, at) {
  const code = text.charCodeAt(at);
  if (code === QUOTE) return endOfString(text, at);
  if (code === 45 || isDigit(code)) return endOfNumber(text, at);
  const word = WORDS.find((each) => text.startsWith(each, at));
  return word ? at + word.length : ~at;
}

function endOfString(text, at) {
  for (let here = at + 1; here < text.length; here += 1) {
    const code = text.charCodeAt(here);
    if (code === QUOTE) return here + 1;
    if (code < 32) return ~here;
    if (code !== BACKSLASH) continue;
    here += 1;
    const escaped = text.charCodeAt(here);
    if (escaped === 117 && /^[0-9a-fA-F]{4}$/.test(text.slice(here + 1, here + 5))) here += 4;
    else if (!ESCAPES.has(escaped)) return ~here;
  }
  return ~text.length;
}

function endOfNumber(text, at) {
  let here = text.charCodeAt(at) === 45 ? at + 1 : at;
  const whole = endOfDigits(text, here);
  if (whole < 0 || (text.charCodeAt(here) === 48 && whole > here + 1)) return ~here;
  here = whole;
  if (text.charCodeAt(here) === 46) here = endOfDigits(text, here + 1);
  if (here < 0) return here;
  if ((text.charCodeAt(here) | 32) !== 101) return here;
  const sign = text.charCodeAt(here + 1);
  return endOfDigits(text, here + (sign === 43 || sign === 45 ? 2 : 1));
}

function endOfDigits(text, at) {
  let here = at;
  while (isDigit(text.charCodeAt(here))) here += 1;
  return here > at ? here : ~at;
}

/** Where a value that begins at `start` ends. The text must be JSON. */
export function endOfValue(text, start) {
  let depth = 0;
  for (let at = start; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) at = closingQuote(text, at);
    else if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
    else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) depth -= 1;
    else if (depth === 0) at = lastOfWord(text, at);
    if (depth === 0) return at + 1;
  }
  return text.length;
}

function closingQuote(text, at) {
  let here = text.indexOf('"', at + 1);
  while (here >= 0 && isEscaped(text, here)) here = text.indexOf('"', here + 1);
  return here < 0 ? text.length : here;
}

function isEscaped(text, at) {
  let before = at - 1;
  while (text.charCodeAt(before) === BACKSLASH) before -= 1;
  return (at - before) % 2 === 0;
}

function lastOfWord(text, at) {
  let here = at;
  for (; here < text.length; here += 1) {
    const code = text.charCodeAt(here);
    if (code === COMMA || code === CLOSE_ARRAY || code === CLOSE_OBJECT || isSpace(code)) break;
  }
  return here - 1;
}

/**
 * Entries of the object or array that begins at `start`: up to `most` of them, from position `from` on, which an earlier
 * call gave as `next`. An entry is {name, start, end}: `name` as it stands, quotes and all, null in an array.
 */
export function entriesOf(text, start, most = Infinity, from = start + 1) {
  const isObject = text.charCodeAt(start) === OPEN_OBJECT;
  const entries = [];
  let at = skipSpace(text, from);
  while (text.charCodeAt(at) !== CLOSE_ARRAY && text.charCodeAt(at) !== CLOSE_OBJECT) {
    if (entries.length >= most) return { entries, next: at };
    let name = null;
    if (isObject) {
      const end = closingQuote(text, at) + 1;
      name = text.slice(at, end);
      at = skipSpace(text, skipSpace(text, end) + 1);
    }
    const end = endOfValue(text, at);
    entries.push({ name, start: at, end });
    at = skipSpace(text, end);
    if (text.charCodeAt(at) === COMMA) at = skipSpace(text, at + 1);
  }
  return { entries, next: null };
}

/** The same JSON, a line for each entry; every token as it stands. Deep levels are indented no further. */
export function format(text) {
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, INDENT_MAX))}`;
  for (let at = skipSpace(text, 0); at < text.length; at = skipSpace(text, at)) {
    const code = text.charCodeAt(at);
    let end = at + 1;
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      const inside = skipSpace(text, end);
      if (text.charCodeAt(inside) === code + 2) {
        out += String.fromCharCode(code, code + 2);
        end = inside + 1;
      } else {
        depth += 1;
        out += text[at] + line();
      }
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      depth -= 1;
      out += line() + text[at];
    } else if (code === COMMA) out += `,${line()}`;
    else if (code === COLON) out += ": ";
    else {
      end = endOfValue(text, at);
      out += text.slice(at, end);
    }
    at = end;
  }
  return out;
}

/** Where in a text a position is, for people: line and column, from 1 on. */
export function lineAt(text, at) {
  const before = text.slice(0, at).split("\n");
  return { line: before.length, column: before[before.length - 1].length + 1 };
}
