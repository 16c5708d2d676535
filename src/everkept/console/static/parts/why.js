// @ts-check
/** Why something was found: the parts of its score, as a strip that adds up. */

import { h } from "../dom.js";

/** @type {Record<string, string>} */
const WORDS = {
  keyword: "words", meaning: "meaning", importance: "importance", recency: "recent", name: "name", links: "links", context: "context", graph: "names and facts",
};

/**
 * @param {Record<string, number>} parts
 * @returns {{name: string, share: number, color: number}[]}
 */
export function orderParts(parts) {
  return Object.entries(parts)
    .filter(([, share]) => Math.abs(share) >= 0.0005)
    .sort(([, a], [, b]) => b - a)
    .map(([name, share], index) => ({ name: WORDS[name] ?? name.replaceAll("_", " "), share, color: index % 6 }));
}

/** @param {Record<string, number> | undefined} parts @param {number} score */
export function drawWhy(parts, score) {
  const ordered = orderParts(parts ?? {});
  const added = ordered.filter((each) => each.share > 0);
  return h("div", { class: "why" },
    h("div", { class: "strip", "aria-hidden": "true" }, added.map((each) => h("i", { class: `kind-${each.color}`, style: { width: `${Math.min(100, each.share * 100)}%` } }))),
    h("ul", { "aria-label": "Why" },
      h("li", { class: "number" }, `score ${score.toFixed(2)}`),
      ordered.map((each) => h("li", { class: "number" }, h("span", { class: `dot kind-${each.color}`, "aria-hidden": "true" }), `${each.name} ${each.share > 0 ? "+" : "−"}${Math.abs(each.share).toFixed(2)}`))));
}
