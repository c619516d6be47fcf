// Whether a topic is still the one that somebody looked at: what they confirm is not to happen to another of its name.

import { get, path } from "./api.js";

/** Throws where the node has no topic of this name any more, or another one. `info` is what was looked at. */
export async function checkSame({ name, id }) {
  const now = await get(path("topics", name)).catch((error) => {
    if (error.code === "topic-not-found") throw new Error(`${name} was deleted meanwhile. Nothing was done.`);
    throw error;
  });
  if (now.id !== id) throw new Error(`${name} was deleted and made anew meanwhile. Nothing was done to the new one.`);
}
