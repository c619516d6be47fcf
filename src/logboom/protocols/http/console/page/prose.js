// Sentences with commands and values in them.

import { el } from "./dom.js";

/** The parts of a text, with words in `backticks` as code. */
export function inCode(text) {
  return text.replace(/\s+/g, " ").split("`").map((part, number) => (number % 2 ? el("code", { text: part }) : part));
}
