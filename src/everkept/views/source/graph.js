// @ts-check
// view for chat: Knowledge graph
/** The entities that a tool found, as a graph that grows where it is asked to. */

import { fill, h, show } from "../../console/static/dom.js";
import { count } from "../../console/static/parts/time.js";
import { Board } from "./board.js";
import { actionButton } from "./buttons.js";
import { startView } from "./chat.js";

const MOST_NODES = 300;
const MOST_OBSERVATIONS = 12; // before a button shows the rest

/** @typedef {{name: string, type: string, observations: string[] | null}} Entity `observations` is null as long as they were not read */

/** Entities and relations of several results, by name. */
class Collected {
  constructor() {
    /** @type {Map<string, Entity>} */
    this.entities = new Map();
    /** @type {Map<string, [string, string, string]>} */
    this.relations = new Map();
  }

  /** @param {any} result of a tool of the graph, in any of its forms */
  add(result) {
    for (const each of result.entities ?? []) {
      const known = this.note(each.name, each.entity_type ?? each.entityType ?? each.type);
      if (each.observations) known.observations = each.observations.map((/** @type {any} */ said) => said.content ?? said.text ?? String(said));
      for (const relation of each.relations ?? []) this.relate(relation);
      for (const { type, target, direction } of each.relationships ?? []) {
        this.relate(direction === "incoming" ? { from: target, to: each.name, relation_type: type } : { from: each.name, to: target, relation_type: type });
      }
    }
    for (const relation of result.relations ?? []) this.relate(relation);
  }

  /** @param {string} name @param {string} [type] */
  note(name, type) {
    const known = this.entities.get(name) ?? { name, type: "", observations: null };
    if (type) known.type = type;
    this.entities.set(name, known);
    return known;
  }

  /** @param {any} relation */
  relate({ from, to, relation_type, relationType }) {
    this.note(from);
    this.note(to);
    const verb = relation_type ?? relationType ?? "";
    this.relations.set(JSON.stringify([from, verb, to]), [from, verb, to]);
  }

  /** @returns {import("./board.js").Outline} */
  outline() {
    const shown = [...this.entities.values()].slice(0, MOST_NODES);
    const at = new Map(shown.map((each, index) => [each.name, index]));
    const types = [...new Set(shown.map((each) => each.type))];
    const kept = [...this.relations.values()].filter(([from, , to]) => at.has(from) && at.has(to));
    const verbs = [...new Set(kept.map(([, verb]) => verb))];
    const links = kept.flatMap(([from, verb, to]) => [/** @type {number} */ (at.get(from)), /** @type {number} */ (at.get(to)), verbs.indexOf(verb)]);
    const degrees = shown.map(() => 0);
    links.forEach((end, index) => index % 3 < 2 && degrees[end]++);
    return { names: shown.map((each) => each.name), types, type_of: shown.map((each) => types.indexOf(each.type)), degrees, verbs, links };
  }
}

startView({
  waits: "Reading the knowledge graph…",
  label: "Knowledge graph",
  draw(result, host, args) {
    const found = new Collected();
    found.add(result);
    if (!found.entities.size) return { said: "No entity was found.", node: null };
    const project = args.project ? { project: args.project } : {};
    const cut = h("p", { class: "mute small", hidden: true });
    const board = new Board({
      zooms: (event) => event.ctrlKey || event.metaKey,
      describe: (node) => describe(node),
      expand: (node) => host.canCall && void expand(node).catch(() => {}),
    });

    /** @param {number} [near] */
    function draw(near) {
      const outline = found.outline();
      cut.hidden = found.entities.size <= MOST_NODES;
      fill(cut, cut.hidden ? null : `${MOST_NODES} of ${count(found.entities.size, "entity", "entities")} are drawn.`);
      board.draw(outline, near);
    }

    /** @param {number} node */
    async function expand(node) {
      const { name } = known(node);
      const before = found.relations.size;
      try {
        found.add(await host.callTool("search_knowledge_graph", { entity: name, depth: 1, ...project }));
      } catch {
        found.add(await host.callTool("open_nodes", { names: [name], ...project }));
      }
      draw(node);
      board.choose(node);
      if (found.relations.size === before) throw new Error("All neighbors of this entity are here.");
    }

    /** @param {number} node */
    const known = (node) => /** @type {Entity} */ (found.entities.get(board.outline.names[node]));

    /** @param {number} node */
    function describe(node) {
      const entity = known(node);
      const place = h("div", { class: "observations" });
      drawObservations(place, entity);
      if (!entity.observations && host.canCall) {
        void host.callTool("open_nodes", { names: [entity.name], ...project }).then((opened) => {
          entity.observations = [];
          found.add(opened);
          drawObservations(place, entity);
        }).catch((error) => fill(place, h("p", { class: "mute" }, ...show(error.message))));
      }
      return [place, host.canCall ? actionButton("Show its neighbors", () => expand(node)) : null];
    }

    draw();
    const outline = board.outline;
    const said = `${count(found.entities.size, "entity", "entities")}, ${count(outline.links.length / 3, "relation")}`;
    return { said, node: h("div", { class: "fields" }, cut, board.node), fit: () => board.drawing.fit(), close: () => board.close() };
  },
});

/** @param {Element} place @param {Entity} entity */
function drawObservations(place, { observations }) {
  const said = observations ?? [];
  const list = (/** @type {string[]} */ each) => h("ul", { class: "short" }, each.map((text) => h("li", null, h("span", { class: "plain" }, ...show(text)))));
  const rest = said.slice(MOST_OBSERVATIONS);
  fill(place, observations ? h("h3", null, count(said.length, "observation")) : null, list(said.slice(0, MOST_OBSERVATIONS)),
    rest.length ? h("details", null, h("summary", null, `${rest.length} more`), list(rest)) : null);
}
