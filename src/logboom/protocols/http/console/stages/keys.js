// Keys as the node lists them, with their numbers digit by digit: they go up to 2^63, and a script's numbers do not.

import { getBytes } from "../node/api.js";
import { entriesOf } from "../text/json.js";
import { looseTextOf } from "../text/value.js";

/** {keys, total}; the `number` of a key is a BigInt. */
export async function readKeys({ prefix, sort, offset, limit }, signal) {
  const { bytes } = await getBytes("/keys", { prefix, sort, offset, limit }, { signal });
  const text = looseTextOf(bytes);
  const { keys, total } = JSON.parse(text);
  const places = entriesOf(text, entryOf(text, 0, "keys").start).entries;
  const exact = ({ start }) => {
    const number = entryOf(text, start, "number");
    return BigInt(text.slice(number.start, number.end));
  };
  return { keys: keys.map((key, at) => ({ ...key, number: exact(places[at]) })), total };
}

function entryOf(text, start, name) {
  return entriesOf(text, start).entries.find((entry) => entry.name === `"${name}"`);
}

export function numberWords({ number }) {
  return number.toLocaleString("en");
}
