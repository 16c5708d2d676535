// @ts-check
/** Two texts compared word by word, and a change as people read it. */

import { h, show } from "../dom.js";

const MOST_WORDS = 4000; // together; longer texts are shown one after the other

/** @typedef {{kind: "same" | "added" | "removed", text: string}} Piece */

/** @param {string} before @param {string} after @returns {Piece[]} */
export function compareWords(before, after) {
  if (before === after) return [{ kind: "same", text: before }];
  const a = before.match(/\s+|[^\s]+/g) ?? [];
  const b = after.match(/\s+|[^\s]+/g) ?? [];
  if (a.length + b.length > MOST_WORDS) return [{ kind: "removed", text: before }, { kind: "added", text: after }];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = align(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return join([
    ...a.slice(0, head).map((text) => ({ kind: /** @type {const} */ ("same"), text })),
    ...middle,
    ...a.slice(a.length - tail).map((text) => ({ kind: /** @type {const} */ ("same"), text })),
  ]);
}

/** Longest common sequence. @param {string[]} a @param {string[]} b @returns {Piece[]} */
function align(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  /** @type {Piece[]} */
  const pieces = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pieces.push({ kind: "same", text: a[i] });
      [i, j] = [i + 1, j + 1];
    } else if (j >= b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      pieces.push({ kind: "removed", text: a[i++] });
    } else {
      pieces.push({ kind: "added", text: b[j++] });
    }
  }
  return pieces;
}

/** @param {Piece[]} pieces */
function join(pieces) {
  /** @type {Piece[]} */
  const joined = [];
  for (const piece of pieces) {
    const last = joined.at(-1);
    if (last && last.kind === piece.kind) last.text += piece.text;
    else joined.push({ ...piece });
  }
  return joined;
}

/** @param {string} before @param {string} after @param {string} [kind] class of the block */
export function drawTextDiff(before, after, kind = "compared") {
  const tags = { same: "span", added: "ins", removed: "del" };
  return h("div", { class: kind }, compareWords(before, after).map((piece) => h(tags[piece.kind], null, ...show(piece.text))));
}

/** @param {any} value */
function toText(value) {
  if (value === null || value === undefined || value === "") return "";
  if (Array.isArray(value)) return value.map(toText).join(", ");
  if (typeof value === "object") return JSON.stringify(value, null, 1);
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/** @type {Record<string, string>} */
const FIELDS = {
  text: "Text", name: "Name", type: "Type", tags: "Tags", importance: "Importance", scope: "Scope", verb: "Relation", source: "From", target: "To", author: "Author",
  superseded_by: "Replaced by", supersedes: "Replaces", pinned: "Pinned", automatic: "Automatic", forgotten_reason: "Forgotten because",
};
const SAID = { insert: "Added", update: "Changed", delete: "Removed", restore: "Restored" };

/** The values that people read, with the details beside them. @param {Record<string, any>} values @returns {Record<string, string>} */
function flatten(values) {
  const { facets, ...rest } = values;
  return Object.fromEntries(Object.entries({ ...(facets ?? {}), ...rest }).filter(([name]) => FIELDS[name]).map(([name, value]) => [name, toText(value)]));
}

/** One edit of a change. @param {{operation: string, kind: string, title: string, before: Record<string, any>, after: Record<string, any>}} edit */
export function drawEdit(edit) {
  const [before, after] = [flatten(edit.before), flatten(edit.after)];
  const said = /** @type {any} */ (SAID)[edit.operation] ?? edit.operation;
  const names = Object.keys(FIELDS).filter((name) => (before[name] ?? "") !== (after[name] ?? ""));
  // A new text is not a difference: it is shown as it reads.
  const draw = (/** @type {string} */ name, /** @type {string} */ kind) => (edit.operation === "insert" ? h("div", { class: kind }, ...show(after[name])) : drawTextDiff(before[name] ?? "", after[name] ?? "", kind));
  return h("div", { class: "fields" },
    h("h3", null, `${said}: ${edit.kind} `, edit.operation === "insert" ? null : h("span", { class: "soft" }, ...show(edit.title))),
    h("dl", { class: "diff" }, names.map((name) => {
      const kind = name === "text" ? "compared" : "plain";
      return [h("dt", { class: kind === "plain" ? null : "unseen" }, FIELDS[name]), h("dd", { class: kind === "plain" ? null : "whole" }, draw(name, kind))];
    })));
}
