// @ts-check
// view for browser: Knowledge graph
/** A file that shows part of a knowledge graph, in any browser and without a network. */

import { h, show } from "../../console/static/dom.js";
import { count } from "../../console/static/parts/time.js";
import { Board } from "./board.js";

const { outline, title, focus } = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("data")).textContent ?? "");
const board = new Board();
const isPart = outline.names.length < outline.total;
const said = isPart ? `${outline.names.length.toLocaleString()} of ${count(outline.total, "entity", "entities")}` : count(outline.total, "entity", "entities");

document.title = title;
document.body.className = "picture";
document.body.append(
  h("main", null,
    h("div", { class: "head" }, h("h1", null, ...show(title)), h("p", { class: "number" }, `${said}, ${count(outline.links.length / 3, "relation")}`)),
    outline.names.length ? board.node : h("p", { class: "empty" }, "This graph has no entities yet.")));
if (outline.names.length) board.draw(outline);
if (focus !== null) board.choose(focus);
