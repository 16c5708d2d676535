// @ts-check
/** Nodes made of text only. Nothing in the console parses a string as HTML. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "indeterminate", "selected", "open", "readOnly"]);
const ATTRIBUTES = new Set([
  "class", "id", "href", "type", "for", "name", "title", "role", "tabindex", "placeholder", "rows", "cols", "min", "max", "step",
  "lang", "dir", "datetime", "alt", "src", "width", "height", "rel", "target", "download", "colspan", "scope", "autocomplete",
  "spellcheck", "autofocus", "label", "viewBox", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "points", "accept",
  "required", "maxlength", "start", "enterkeyhint",
]);
// Characters that are not seen or that turn the direction of text. They can hide instructions.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element. A property named `onclick` or the like is a listener, `style` an object, `aria-` and `data-` attributes.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  setProps(node, props);
  node.append(...toNodes(children));
  return node;
}

/** Make an element of a drawing. @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children */
export function s(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  setProps(node, props);
  node.append(...toNodes(children));
  return node;
}

/** @param {Element} node @param {Record<string, any> | null | undefined} props */
function setProps(node, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) /** @type {any} */ (node).style.setProperty(key, each);
    else if (PROPERTIES.has(name)) /** @type {any} */ (node)[name] = value;
    else if (value === false) continue;
    else if (ATTRIBUTES.has(name) || /^(aria|data)-[a-z-]+$/.test(name)) node.setAttribute(name, value === true ? "" : String(value));
    else throw new Error(`h() does not know ${name}.`);
  }
}

/** @param {any[]} children @returns {(Node | string)[]} */
function toNodes(children) {
  return children.flat(3).filter((each) => each !== null && each !== undefined && each !== false).map((each) => (each instanceof Node ? each : String(each)));
}

/** Replace what a node contains. @param {Element} node @param {...(Child | Child[])} children */
export function fill(node, ...children) {
  node.replaceChildren(...toNodes(children));
  return node;
}

/** An icon of the sprite. With a label it has a name of its own. @param {string} name @param {string} [label] */
export function icon(name, label) {
  const use = s("use");
  use.setAttribute("href", `/console/icons.svg#${name}`);
  const drawing = s("svg", { class: "icon", ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) }, use);
  return drawing;
}

/** Foreign text, with a mark for each hidden character. @param {string | null | undefined} text @returns {(Node | string)[]} */
export function show(text) {
  const value = text ?? "";
  if (value.search(HIDDEN) < 0) return [value];
  const parts = [];
  let at = 0;
  for (const match of value.matchAll(HIDDEN)) {
    const code = `U+${(match[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(value.slice(at, match.index), h("span", { class: "mark", title: "A hidden character" }, code));
    at = (match.index ?? 0) + match[0].length;
  }
  parts.push(value.slice(at));
  return parts.filter((each) => each !== "");
}

/** A link to another place, only if it is a web address; otherwise its text. @param {string} address @param {...Child} children */
export function link(address, ...children) {
  if (!/^https?:\/\//i.test(address)) return h("span", null, ...children);
  return h("a", { href: address, rel: "noopener noreferrer", target: "_blank", title: address }, ...children);
}

/** Tell people who cannot see the page what has happened. @param {string} text */
export function announce(text) {
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}
