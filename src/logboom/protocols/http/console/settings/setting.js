// One setting as a field: made of its schema, kept beside what the node has, and marked where it is not the default.
//
// A field that nobody touched follows the node. One that was touched stays, and says so when the node's value changes.

import { el, newId, set, setText } from "../page/dom.js";
import { inCode } from "../page/prose.js";
import { BYTES, DURATION, NUMBER, parseAmount, writeAmount } from "../text/units.js";

const NONE = "none";
const UNTOLD = 2 ** 50;

export class Setting {
  /** `changed()` is called whenever the control is. */
  constructor(group, name, schema, changed) {
    this.group = group;
    this.name = name;
    this.key = name ? `${group}.${name}` : group;
    this.schema = schema;
    this.shape = shapeOf(name, schema);
    this.base = schema.default;
    this.conflict = false;
    this.changed = changed;
    this.build();
  }

  build() {
    const id = newId("setting");
    this.control = makeControl(this.shape);
    Object.assign(this.control, { id });
    set(this.control, "aria-describedby", `${id}-help ${id}-note`);
    this.control.addEventListener("input", () => this.touch());
    this.mark = el("span", { class: "pill", text: "not the default" });
    this.reset = el("button", { type: "button", class: "quiet small", text: "Default", "aria-label": `Default of ${this.key}` });
    this.reset.addEventListener("click", () => this.fill(this.schema.default));
    this.note = el("p", { class: "note", id: `${id}-note`, role: "status" });
    this.element = el("div", { class: "setting" },
      el("div", { class: "title" }, el("label", { for: id, text: this.key }), this.mark, this.reset),
      this.control, this.note, el("p", { class: "help", id: `${id}-help` }, this.help()));
    this.undo();
  }

  help() {
    const { minimum, maximum, unit } = this.shape;
    const meaning = (this.schema.description ?? "").replace(/\bNull\b/g, "Empty");
    const parts = [
      meaning,
      unit === "list" && "One in a line.",
      minimum !== undefined && `Allowed are ${this.range(minimum, maximum)}.`,
      this.shape.nullable && !meaning.includes("Empty") && "Empty is none.",
      `Default: ${this.words(this.schema.default)}.`,
    ];
    return inCode(parts.filter(Boolean).join(" "));
  }

  /** A limit that nobody comes to is not told. */
  range(minimum, maximum) {
    const isUntold = maximum > UNTOLD && this.shape.unit !== BYTES;
    return isUntold ? `${this.words(minimum)} and more` : `${this.words(minimum)} to ${this.words(maximum)}`;
  }

  words(value) {
    return this.write(value) || NONE;
  }

  write(value) {
    if (value === null || value === undefined) return "";
    const { unit } = this.shape;
    if (unit === "list") return value.join("\n");
    return unit?.units ? writeAmount(value, unit) : String(value);
  }

  /** What the control says. Throws in words where that is nothing the setting may be. */
  read() {
    const text = this.control.value;
    const { unit, nullable, minimum, maximum } = this.shape;
    if (unit === "list") return text.split("\n").map((line) => line.trim()).filter(Boolean);
    if (unit === "choice" || unit === "text") return text === "" && nullable ? null : text;
    if (unit === "switch") return text === "true";
    if (text.trim() === "") {
      if (nullable) return null;
      throw new Error("It needs a value.");
    }
    const value = unit === "decimal" ? parseDecimal(text) : parseAmount(text, unit);
    if (minimum !== undefined && (value < minimum || value > maximum)) throw new Error(`Allowed are ${this.range(minimum, maximum)}.`);
    return value;
  }

  get isTouched() {
    return this.control.value !== this.write(this.base);
  }

  /** Whether what the control says is another value than the node's; also where it says nothing sensible. */
  get isChanged() {
    if (!this.isTouched) return false;
    try {
      return this.write(this.read()) !== this.write(this.base);
    } catch {
      return true;
    }
  }

  /** What the node has now. */
  take(value) {
    const isNew = this.write(value) !== this.write(this.base);
    const isTouched = this.isTouched;
    this.base = value;
    if (!isTouched) this.put(value);
    else if (isNew) this.conflict = this.isTouched;
    this.show();
  }

  /** What the node has after it took ours. */
  settle(value) {
    this.base = value;
    this.undo();
  }

  undo() {
    this.conflict = false;
    this.put(this.base);
    this.show();
  }

  /** As if it were typed. */
  fill(value) {
    this.put(value);
    this.control.focus();
    this.touch();
  }

  put(value) {
    const text = this.write(value);
    if (this.control.value !== text) this.control.value = text;
  }

  touch() {
    this.refused = "";
    if (!this.isTouched) this.conflict = false;
    this.show();
    this.changed();
  }

  /** The node has said no to it. */
  refuse(reason) {
    this.refused = reason;
    this.show();
    this.control.focus();
  }

  show() {
    const wrong = this.refused || this.trouble();
    const other = this.conflict ? `Somebody changed it to ${this.words(this.base)} meanwhile. Save puts yours in its place, Undo takes theirs.` : "";
    setText(this.note, wrong || other);
    set(this.note, "class", wrong ? "note wrong" : "note other");
    set(this.control, "aria-invalid", wrong ? "true" : null);
    const isDefault = this.control.value === this.write(this.schema.default);
    this.mark.hidden = isDefault;
    this.reset.hidden = isDefault || this.control.disabled;
    set(this.element, "class", `setting${isDefault ? "" : " differs"}${this.isTouched ? " touched" : ""}`);
  }

  trouble() {
    try {
      if (this.isTouched) this.read();
      return "";
    } catch (error) {
      return error.message;
    }
  }
}

/** What a schema lets a value be: {unit, nullable, minimum, maximum, choices}. */
function shapeOf(name, schema) {
  const kinds = (schema.anyOf ?? [schema]).filter(({ type }) => type !== "null");
  const kind = kinds[0];
  const nullable = kinds.length < (schema.anyOf ?? [schema]).length;
  if (kind.enum) return { unit: "choice", nullable, choices: kind.enum };
  if (kind.type === "array") return { unit: "list", nullable };
  if (kind.type === "boolean") return { unit: "switch", nullable, choices: ["true", "false"] };
  if (kind.type === "string") return { unit: "text", nullable };
  const { minimum, maximum } = kind;
  if (kind.type === "number") return { unit: "decimal", nullable, minimum, maximum };
  const unit = name.endsWith("_ms") ? DURATION : name.endsWith("bytes") ? BYTES : NUMBER;
  return { unit, nullable, minimum, maximum };
}

function makeControl({ unit, choices, nullable }) {
  const option = (value, text = value) => el("option", { value, text });
  if (choices) return el("select", {}, nullable && option("", NONE), choices.map((choice) => option(choice)));
  if (unit === "list") return el("textarea", { rows: "2", spellcheck: "false", autocomplete: "off" });
  return el("input", { type: "text", spellcheck: "false", autocomplete: "off", placeholder: nullable ? NONE : null });
}

function parseDecimal(text) {
  if (!/^\s*\d+(\.\d+)?\s*$/.test(text)) throw new Error(`“${text.trim().slice(0, 40)}” is not a number: write it as 0.1`);
  return Number(text);
}
