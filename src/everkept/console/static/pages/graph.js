// @ts-check
/** Graph: one entity with its surroundings, or all of them; and the same as a list. */

import { call } from "../api.js";
import { announce, fill, h, icon, show as text } from "../dom.js";
import { Drawing } from "../graph/drawing.js";
import { findPath } from "../graph/layout.js";
import { drawEntity, askForEntity } from "../parts/entity.js";
import { head, newsButton } from "../parts/head.js";
import { iconButton } from "../parts/memory.js";
import { Rows } from "../parts/rows.js";
import { empty, failure, fillWith } from "../parts/states.js";
import { count } from "../parts/time.js";
import { toast } from "../parts/toast.js";
import { go, place } from "../router.js";
import { getOneProject, getProject, projects, server } from "../state.js";

const HOPS = 2;

/** @type {any} */
const policies = /** @type {any} */ (globalThis).trustedTypes;
const policy = policies?.createPolicy("layout", { createScriptURL: () => "/console/graph/worker.js" });

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  let route = first;
  const project = first.query.get("project") ?? getOneProject();
  const said = h("p", { class: "number", role: "status" });
  if (!project) {
    main.append(head("Graph"), empty("Entities and relations appear here when an assistant adds some. There is no project yet.", "everkept create-project shop"));
    return {};
  }
  /** @type {any} */
  let outline = null;
  let links = new Int32Array();
  const canvas = h("canvas", { class: "graph", "aria-hidden": "true" });
  const details = h("aside", { class: "details", "aria-label": "The open entity", hidden: true });
  const legend = h("ul", { class: "line tight legend", "aria-label": "Types" });
  const field = h("input", { type: "search", placeholder: "Find an entity", "aria-label": "Find an entity" });
  const board = h("div", { class: "board" }, canvas, h("div", { class: "tools" },
    iconButton("plus", "Zoom in", () => drawing.zoom(1.4)), iconButton("minus", "Zoom out", () => drawing.zoom(1 / 1.4)), iconButton("fit", "Show everything", () => drawing.fit())), legend);
  const twin = h("div", { class: "twin" });
  const listTitle = h("h2", null, "The same as a list");
  const own = project === getProject() ? {} : { project };
  const address = (/** @type {string} */ id) => place("graph", id, own);
  const whole = h("button", { type: "button", class: "button", onclick: () => go(place("graph", "", { whole: 1, ...own })) }, "Whole graph");
  const choice = h("select", { "aria-label": "Project of the graph", onchange: () => go(place("graph", "", { project: choice.value })) },
    projects.filter((each) => each.status === "active" && !each.off).map((each) => h("option", { value: each.name, selected: each.name === project }, each.name)));
  const split = h("div", { class: "split" }, h("div", { class: "fields" }, board, listTitle, twin), details);
  const refresh = () => load(true);
  const news = newsButton(refresh);
  main.append(head("Graph", said, news.node, h("div", { class: "spring" }), getProject() === project ? null : choice, h("form", { onsubmit: find }, field), whole,
    server.read_only ? null : h("button", { type: "button", class: "button", onclick: () => askForEntity(project, refresh) }, icon("plus"), "Entity")), split);

  const drawing = new Drawing(canvas, { choose: (node) => choose(node), expand: (node) => node >= 0 && go(address(outline.ids[node])) });
  const worker = new Worker(policy ? policy.createScriptURL("") : "/console/graph/worker.js", { type: "module" });
  worker.onmessage = (event) => {
    drawing.setPositions(event.data.positions, event.data.settled);
    board.dataset.settled = String(event.data.settled);
  };
  const rows = new Rows({
    label: "Entities",
    height: 48,
    key: (node) => String(node),
    load: async (start, limit) => {
      const shown = /** @type {number[]} */ ([...(outline?.ids ?? []).keys()]).filter((each) => !drawing.hidden.has(outline.type_of[each]));
      return { items: shown.slice(start, start + limit), total: shown.length };
    },
    draw: (node) => h("div", { class: `row shared ${node === drawing.chosen ? "chosen" : ""}` },
      h("a", { class: "open line-of-text", href: address(outline.ids[node]), onclick: (/** @type {Event} */ event) => { event.preventDefault(); choose(node); } }, ...text(outline.names[node])),
      h("div", { class: "meta" }, h("span", { class: "line-of-text" }, ...text(outline.types[outline.type_of[node]])), h("span", { class: "number" }, count(outline.degrees[node], "relation")))),
    whenEmpty: () => empty("Entities and relations appear here when an assistant adds some, or when you do.", 'everkept create-entities "Shop API:service"'),
  });
  fill(twin, rows.node);

  /** @param {boolean} [again] the same part of the graph; what is chosen and where it is stays */
  async function load(again = false) {
    const before = outline;
    const chosen = before?.ids[drawing.chosen];
    try {
      outline = await readOutline();
    } catch (error) {
      return fill(twin, failure(error, load));
    }
    if (!again || JSON.stringify(before) !== JSON.stringify(outline)) await drawOutline(again ? before : null);
    const wanted = again ? chosen : route.id;
    if (wanted) await choose(outline.ids.indexOf(wanted));
    const goal = route.query.get("to");
    if (goal && !again && drawing.chosen >= 0) showPath(drawing.chosen, goal);
  }
  /** @param {any} before the outline whose places stay, if any */
  async function drawOutline(before) {
    links = toLinks(outline.links);
    board.hidden = whole.hidden = field.hidden = listTitle.hidden = !outline.ids.length;
    const from = before ? keepPlaces(before) : undefined;
    drawing.setShape({ names: outline.names, types: outline.types, type_of: outline.type_of, degrees: outline.degrees, links, verbs: toVerbs(outline) }, from);
    drawLegend();
    const isPart = outline.ids.length < outline.total;
    fill(said, isPart ? `${outline.ids.length.toLocaleString()} of ${count(outline.total, "entity", "entities")}` : count(outline.total, "entity", "entities"));
    board.dataset.settled = "false";
    worker.postMessage({ count: outline.ids.length, links, from, still: matchMedia("(prefers-reduced-motion: reduce)").matches });
    await rows.reload();
  }
  /** Where the entities of an earlier outline are. @param {any} before */
  function keepPlaces(before) {
    const known = new Map(before.ids.map((/** @type {string} */ id, /** @type {number} */ node) => [id, node]));
    const from = new Float32Array(outline.ids.length * 2).fill(NaN);
    outline.ids.forEach((/** @type {string} */ id, /** @type {number} */ node) => {
      const old = known.get(id);
      if (old !== undefined) from.set(drawing.positions.subarray(2 * old, 2 * old + 2), 2 * node);
    });
    return from;
  }
  async function readOutline() {
    const name = route.query.get("find");
    if (name) {
      const found = await call("find_entity", { project, name });
      route.id = found.entity.id;
    }
    if (route.query.has("whole")) return call("outline_graph", { project });
    if (route.id) return call("outline_graph", { project, around: route.id, hops: HOPS });
    const all = await call("outline_graph", { project, limit: 1 });
    if (!all.ids.length || all.total <= 300) return call("outline_graph", { project });
    return call("outline_graph", { project, around: all.ids[0], hops: HOPS });
  }
  function drawLegend() {
    fill(legend, outline.types.slice(0, 12).map((/** @type {string} */ type, /** @type {number} */ index) => h("li", null, h("button", {
      type: "button", class: `chip kind-${index % 6}`, "aria-pressed": String(!drawing.hidden.has(index)), onclick: () => toggleType(index),
    }, h("span", { class: `shape shape-${index % 6}`, "aria-hidden": "true" }), h("span", null, ...text(type || "without a type"))))));
  }
  /** @param {number} type */
  function toggleType(type) {
    if (!drawing.hidden.delete(type)) drawing.hidden.add(type);
    drawLegend();
    drawing.ask();
    void rows.reload();
  }
  /** @param {number} node */
  async function choose(node) {
    drawing.chosen = node;
    drawing.path = new Set();
    drawing.ask();
    rows.redraw();
    details.hidden = node < 0;
    split.classList.toggle("open", node >= 0);
    if (node < 0) return void fill(details);
    await fillWith(details, () => call("read_graph_entity", { project, entity_id: outline.ids[node] }), (found) =>
      drawEntity(found, { project: /** @type {string} */ (project), close: () => choose(-1), after: refresh, focus: () => go(address(outline.ids[node])), address, path: (name) => showPath(node, name) }));
  }
  /** @param {number} from @param {string} name */
  function showPath(from, name) {
    const wanted = name.toLowerCase();
    const to = outline.names.findIndex((/** @type {string} */ each) => each.toLowerCase() === wanted);
    const isWhole = outline.ids.length === outline.total || route.query.has("whole");
    if (to < 0 && !isWhole) return go(place("graph", outline.ids[from], { whole: 1, to: name, ...own }));
    if (to < 0) return toast(`No entity here is called "${name}".`);
    const path = findPath(outline.ids.length, links, from, to);
    if (!path.length && !isWhole) return go(place("graph", outline.ids[from], { whole: 1, to: name, ...own }));
    if (!path.length) return toast(`No path connects ${outline.names[from]} and ${outline.names[to]} here.`);
    drawing.path = new Set(path);
    drawing.ask();
    const said = path.map((each) => outline.names[each]).join(" → ");
    announce(said);
    toast(`${count(path.length - 1, "step")}: ${said}`);
  }
  /** @param {Event} event */
  async function find(event) {
    event.preventDefault();
    const found = await call("find_entities", { project, text: field.value.trim() });
    if (!found.entities.length) return toast(`No entity is called "${field.value}".`);
    go(address(found.entities[0].id));
  }
  await load();
  return {
    close: () => {
      worker.terminate();
      drawing.close();
      rows.close();
    },
    changed: news.tell,
    /** @param {import("../router.js").Route} next */
    update(next) {
      if ((next.query.get("project") ?? getOneProject()) !== project) return false;
      route = next;
      void load();
      return true;
    },
    keys: [
      { keys: "j", says: "Next entity", run: () => rows.move(1) },
      { keys: "k", says: "Previous entity", run: () => rows.move(-1) },
      { keys: "+", says: "Zoom in", run: () => drawing.zoom(1.4) },
      { keys: "-", says: "Zoom out", run: () => drawing.zoom(1 / 1.4) },
      { keys: "0", says: "Show everything", run: () => drawing.fit() },
      { keys: "f", says: "Find an entity", run: () => field.focus() },
      { keys: "Esc", says: "Close the entity", run: () => choose(-1) },
    ],
  };
}

/** @param {{links: number[], verbs: string[]}} outline @returns {string[]} what each link says */
function toVerbs({ links, verbs }) {
  return Array.from({ length: links.length / 3 }, (_, at) => verbs[links[3 * at + 2]]);
}

/** @param {number[]} triples source, target and verb of each link */
function toLinks(triples) {
  const links = new Int32Array((triples.length / 3) * 2);
  for (let at = 0; at * 3 < triples.length; at++) {
    links[2 * at] = triples[3 * at];
    links[2 * at + 1] = triples[3 * at + 1];
  }
  return links;
}
