// @ts-check
/** A graph to look at: the drawing, its legend, the same as a list, and the chosen entity. */

import { fill, h, show } from "../../console/static/dom.js";
import { Drawing } from "../../console/static/graph/drawing.js";
import { Layout } from "../../console/static/graph/layout.js";
import { count } from "../../console/static/parts/time.js";
import { tool } from "./buttons.js";

const SLICE = 4; // milliseconds of layout between two chances for the page to answer
const QUIET_TICKS = 120; // before the first picture, so that nothing dances
const EVERY = 3; // ticks between two pictures
const LISTED = 60; // entities of the list before a button shows the rest
const SHOWN_TYPES = 12;
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

/** @typedef {{names: string[], types: string[], type_of: number[], degrees: number[], verbs: string[], links: number[]}} Outline `links` has source, target and verb of each */

export class Board {
  /** @param {{zooms?: (event: WheelEvent) => boolean, describe?: (node: number) => any, expand?: (node: number) => void}} [options] `describe` gives what is known of an entity beside its relations */
  constructor({ zooms, describe, expand } = {}) {
    this.describe = describe;
    /** @type {Outline} */
    this.outline = { names: [], types: [], type_of: [], degrees: [], verbs: [], links: [] };
    this.listed = LISTED;
    this.turn = 0;
    const canvas = h("canvas", { class: "graph", "aria-hidden": "true" });
    this.board = h("div", { class: "board" }, canvas, h("div", { class: "tools" },
      tool("M8 3v10M3 8h10", "Zoom in", () => this.drawing.zoom(1.4)),
      tool("M3 8h10", "Zoom out", () => this.drawing.zoom(1 / 1.4)),
      tool("M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3", "Show everything", () => this.drawing.fit())));
    this.legend = h("ul", { class: "line tight legend", "aria-label": "Types" });
    this.chosen = h("section", { class: "panel", "aria-label": "The chosen entity", hidden: true });
    this.list = h("ul", { class: "rows" });
    this.total = h("summary", null);
    this.node = h("div", { class: "fields" }, this.board, this.legend, this.chosen, h("details", { class: "twin" }, this.total, this.list));
    this.drawing = new Drawing(canvas, { choose: (node) => this.choose(node), expand: (node) => node >= 0 && expand?.(node), zooms });
  }

  /** Draw a graph. Entities that were there stay in their places, new ones begin at `near`. @param {Outline} outline @param {number} [near] */
  draw(outline, near = -1) {
    const { drawing } = this;
    const [before, positions] = [this.outline, drawing.positions];
    const pairs = new Int32Array((outline.links.length / 3) * 2);
    for (let at = 0; at * 3 < outline.links.length; at++) pairs.set(outline.links.slice(3 * at, 3 * at + 2), 2 * at);
    this.outline = outline;
    drawing.setShape({ names: outline.names, types: outline.types, type_of: outline.type_of, degrees: outline.degrees, links: pairs, verbs: Array.from({ length: outline.links.length / 3 }, (_, at) => outline.verbs[outline.links[3 * at + 2]]) });
    const start = new Float32Array(outline.names.length * 2).fill(NaN);
    if (near >= 0) outline.names.forEach((_, node) => {
      const known = node < before.names.length;
      const [from, radius] = known ? [node, 0] : [near, 24 + node % 7];
      start[2 * node] = positions[2 * from] + radius * Math.cos(node * GOLDEN);
      start[2 * node + 1] = positions[2 * from + 1] + radius * Math.sin(node * GOLDEN);
    });
    this.drawLegend();
    this.drawList();
    void this.settle(new Layout(outline.names.length, pairs, start));
  }

  /** Lay the graph out in slices. @param {Layout} layout */
  async settle(layout) {
    const mine = ++this.turn;
    this.board.dataset.settled = "false";
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let began = performance.now();
    for (let tick = 1; !layout.isSettled && layout.count; tick++) {
      layout.tick();
      if (tick > QUIET_TICKS && tick % EVERY === 0 && !isStill) this.drawing.setPositions(layout.positions.slice(), false);
      if (performance.now() - began < SLICE) continue;
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== this.turn) return;
      began = performance.now();
    }
    this.drawing.setPositions(layout.positions.slice(), true);
    this.board.dataset.settled = "true";
  }

  /** @param {number} node */
  choose(node) {
    const { drawing, outline } = this;
    drawing.chosen = node;
    drawing.ask();
    this.drawList();
    this.chosen.hidden = node < 0;
    if (node < 0) return void fill(this.chosen);
    const type = outline.types[outline.type_of[node]];
    const relations = this.listRelations(node);
    fill(this.chosen,
      h("div", { class: "head" }, h("h2", { tabindex: -1 }, ...show(outline.names[node])), type ? h("span", { class: "badge" }, ...show(type)) : null, tool("M4 4l8 8M12 4l-8 8", "Close", () => this.choose(-1))),
      this.describe?.(node),
      h("h3", null, count(relations.length, "relation")),
      h("ul", { class: "short" }, relations.map(({ verb, other, isOut }) => {
        const link = h("button", { type: "button", class: "link", onclick: () => this.goTo(other) }, ...show(outline.names[other]));
        const said = h("em", null, ...show(verb.replaceAll("_", " ")));
        return h("li", null, h("span", null, ...(isOut ? [said, " ", link] : [link, " ", said, " this"])));
      })));
  }

  /** @param {number} node */
  goTo(node) {
    const hadFocus = this.chosen.contains(document.activeElement);
    this.choose(node);
    if (hadFocus) this.chosen.querySelector("h2")?.focus({ preventScroll: true });
    if (!this.isInView(node)) this.drawing.center(node);
    this.chosen.scrollIntoView({ block: "nearest" });
  }

  /** @param {number} node */
  isInView(node) {
    const [x, y] = this.drawing.toScreen(node);
    const { clientWidth, clientHeight } = this.drawing.canvas;
    return x > 0 && y > 0 && x < clientWidth && y < clientHeight;
  }

  /** @param {number} node */
  listRelations(node) {
    const { links, verbs } = this.outline;
    const found = [];
    for (let at = 0; at < links.length; at += 3) {
      if (links[at] === node) found.push({ verb: verbs[links[at + 2]], other: links[at + 1], isOut: true });
      else if (links[at + 1] === node) found.push({ verb: verbs[links[at + 2]], other: links[at], isOut: false });
    }
    return found;
  }

  drawLegend() {
    const { drawing, outline } = this;
    fill(this.legend, outline.types.slice(0, SHOWN_TYPES).map((type, index) => h("li", null, h("button", {
      type: "button", class: `chip kind-${index % 6}`, "aria-pressed": String(!drawing.hidden.has(index)), onclick: () => this.toggle(index),
    }, h("span", { class: `shape shape-${index % 6}`, "aria-hidden": "true" }), h("span", null, ...show(type || "without a type"))))));
  }

  /** Show or hide a type. @param {number} type */
  toggle(type) {
    if (!this.drawing.hidden.delete(type)) this.drawing.hidden.add(type);
    this.drawLegend();
    this.drawList();
    this.drawing.ask();
  }

  drawList() {
    const { drawing, outline } = this;
    const nodes = [...outline.names.keys()].filter((node) => !drawing.hidden.has(outline.type_of[node]));
    const hadFocus = this.list.contains(document.activeElement);
    fill(this.total, `List of ${count(nodes.length, "entity", "entities")}`);
    fill(this.list, nodes.slice(0, this.listed).map((node) => h("li", null, h("div", { class: `row ${node === drawing.chosen ? "chosen" : ""}` },
      h("button", { type: "button", class: "open link line-of-text", onclick: () => this.goTo(node) }, ...show(outline.names[node])),
      h("div", { class: "meta" }, h("span", null, ...show(outline.types[outline.type_of[node]])), h("span", { class: "number" }, count(outline.degrees[node], "relation")))))),
      nodes.length > this.listed ? h("li", { class: "more" }, h("button", { type: "button", class: "button small", onclick: () => { this.listed = Infinity; this.drawList(); } }, `Show all ${nodes.length}`)) : null);
    if (hadFocus) this.list.querySelector(".chosen button")?.focus({ preventScroll: true });
  }

  close() {
    this.turn++;
    this.drawing.close();
  }
}
