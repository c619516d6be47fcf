// A control that chooses one of a topic's partitions: a list, or a number where a list would be too long.

import { el } from "./dom.js";

const LIST_MAX = 200;

export function partitionChoice(partitions) {
  if (partitions > LIST_MAX) return el("input", { type: "number", min: "0", max: String(partitions - 1), step: "1", required: true, value: "0" });
  return el("select", {}, Array.from({ length: partitions }, (_, number) => el("option", { value: String(number), text: String(number) })));
}
