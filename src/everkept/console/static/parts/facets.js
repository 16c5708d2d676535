// @ts-check
/** Traits to filter by, each with the number of matches. */

import { h, show } from "../dom.js";
import { nameProject } from "../state.js";

const SHOWN = 8;

/**
 * @param {Record<string, [string, number][]>} facets
 * @param {Record<string, string>} titles of the traits to show, in this order
 * @param {(trait: string) => string[]} chosen
 * @param {(trait: string, value: string) => void} toggle
 */
export function drawFacets(facets, titles, chosen, toggle) {
  return Object.entries(titles).map(([trait, title]) => {
    const values = facets[trait] ?? [];
    if (!values.length) return null;
    const on = chosen(trait);
    const draw = (/** @type {[string, number][]} */ some) => some.map(([value, count]) =>
      h("li", null, h("button", { type: "button", "aria-pressed": String(on.includes(value)), onclick: () => toggle(trait, value) },
        h("span", { title: value }, ...show(trait === "project" ? nameProject(value) : value)), h("span", { class: "number" }, count.toLocaleString()))));
    const rest = values.slice(SHOWN);
    return h("section", null, h("h2", null, title), h("ul", null, draw(values.slice(0, SHOWN))),
      rest.length ? h("details", { open: rest.some(([value]) => on.includes(value)) }, h("summary", { class: "mute small" }, `${rest.length} more`), h("ul", null, draw(rest))) : null);
  });
}
