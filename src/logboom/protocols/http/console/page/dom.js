// Elements made of values, never of markup: whatever a record or a name holds becomes text.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these properties and children. A property is an attribute; `on…` is a listener, `text` its text. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  append(element, children);
  return element;
}

/** One property; null and false take the attribute away. */
export function set(element, name, value) {
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "text") setText(element, value);
  else if (name === "value" || name === "checked") element[name] = value;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Touches the page only where the text is another one: what does not change is not laid out again. */
export function setText(element, value) {
  const text = value === null || value === undefined ? "" : String(value);
  if (element.textContent !== text) element.textContent = text;
}

const BACK = 14;

/** A name that is cut in its middle where there is no room, because names often differ at their ends. */
export function setName(element, name) {
  if (element.textContent === name) return;
  set(element, "aria-label", name); // in two parts it would be read as two words
  if (name.length <= 2 * BACK) return void element.replaceChildren(name);
  element.replaceChildren(el("span", { class: "front", text: name.slice(0, -BACK) }), el("span", { class: "back", text: name.slice(-BACK) }));
}

/** Make the children of `parent` those of `items`, in their order: kept where the key is the same, with the focus. */
export function keyed(parent, items, keyOf, make, update) {
  const focused = document.activeElement;
  const before = new Map();
  for (const child of parent.children) if (child.key !== undefined) before.set(child.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = before.get(key);
    if (child === undefined) {
      child = make(item);
      child.key = key;
    }
    before.delete(key);
    update?.(child, item);
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
  while (at) {
    const unused = at;
    at = at.nextElementSibling;
    unused.remove();
  }
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true }); // it was moved
}

let ids = 0;

/** A name for an element that a label or a description refers to. */
export function newId(prefix = "e") {
  ids += 1;
  return `${prefix}-${ids}`;
}
