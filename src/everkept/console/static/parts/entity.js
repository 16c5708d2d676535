// @ts-check
/** One entity of the graph with its observations and relations, and what can be done with it. */

import { change } from "../api.js";
import { h, show } from "../dom.js";
import { place } from "../router.js";
import { server } from "../state.js";
import { ask, confirm, openDialog } from "./dialog.js";
import { iconButton } from "./memory.js";
import { copyButton } from "./states.js";
import { age, count } from "./time.js";
import { findNewestChange, tellChange, tellError } from "./toast.js";

/** @typedef {{project: string, address: (id: string) => string, close: () => void, after: () => any, focus: () => void, path: (name: string) => void}} Options */

/** @param {string} tool @param {Record<string, any>} args @param {string} said @param {Options | {project: string, after: () => any}} options */
async function act(tool, args, said, { project, after }) {
  await change(tool, { ...args, project });
  tellChange(said, await findNewestChange(project), after);
  await after();
}

/** @param {any} found @param {Options} options */
export function drawEntity(found, options) {
  const { entity, observations, relations, memories } = found;
  const button = (/** @type {string} */ label, /** @type {() => any} */ run, kind = "") => h("button", { type: "button", class: `button small ${kind}`, onclick: run }, label);
  return h("div", null,
    h("div", { class: "head" }, h("h2", null, ...show(entity.name)), h("span", { class: "badge" }, ...show(entity.type ?? "")), h("div", { class: "spring" }), copyButton(entity.name, "Copy the name"), iconButton("close", "Close (Esc)", options.close)),
    h("div", { class: "line actions" },
      button("Focus", options.focus),
      button("Path to…", () => ask("Path to another entity", { label: "Name of the other entity" }, "Find", (name) => options.path(name))),
      server.read_only ? null : button("Delete", () => confirm("Delete this entity?", h("p", null, `Its ${count(observations.length, "observation")} and ${count(relations.length, "relation")} are deleted too. You can undo this.`), "Delete", () => act("delete_entities", { entityNames: [entity.name] }, `Deleted ${entity.name}.`, options)), "danger")),
    h("section", null, h("h3", null, count(observations.length, "observation")),
      h("ul", { class: "short" }, observations.map((/** @type {any} */ each) => h("li", null, h("span", { class: "plain" }, ...show(each.text)), age(each.created_at),
        server.read_only ? null : [
          iconButton("edit", "Edit the observation", () => editObservation(entity, each, options)),
          iconButton("forget", "Delete the observation", () => act("delete_observations", { deletions: [{ entityName: entity.name, observations: [each.text] }] }, "Deleted the observation.", options).catch(tellError)),
        ]))),
      server.read_only ? null : button("Add an observation", () => ask(`What is true of ${entity.name}?`, { label: "Observation", lines: true }, "Add", (text) => act("add_observations", { observations: [{ entityName: entity.name, contents: [text] }] }, "Added the observation.", options)))),
    h("section", null, h("h3", null, count(relations.length, "relation")),
      h("ul", { class: "short" }, relations.slice(0, 200).map((/** @type {any} */ each) => drawRelation(entity, each, options))),
      server.read_only ? null : button("Add a relation", () => askForRelation(entity, options))),
    memories.length ? h("section", null, h("h3", null, count(memories.length, "memory", "memories")), h("ul", { class: "short" }, memories.map((/** @type {any} */ each) => h("li", null, h("a", { href: place("memories", each.id) }, ...show(each.text)))))) : null);
}

/** @param {any} entity @param {any} relation @param {Options} options */
function drawRelation(entity, relation, options) {
  const other = h("a", { href: options.address(relation.entity.id) }, ...show(relation.entity.name));
  const verb = h("em", null, ...show(relation.verb.replaceAll("_", " ")));
  const [from, to] = relation.outgoing ? [entity.name, relation.entity.name] : [relation.entity.name, entity.name];
  return h("li", null, h("span", null, ...(relation.outgoing ? [verb, " ", other] : [other, " ", verb, " this"])),
    server.read_only ? null : iconButton("forget", `Delete the relation to ${relation.entity.name}`, () => act("delete_relations", { relations: [{ from, to, relationType: relation.verb }] }, "Deleted the relation.", options).catch(tellError)));
}

/** @param {any} entity @param {any} observation @param {Options} options */
function editObservation(entity, observation, options) {
  ask("Edit the observation", { label: "Observation", value: observation.text, lines: true }, "Save", async (text) => {
    if (text === observation.text) return;
    await change("add_observations", { observations: [{ entityName: entity.name, contents: [text] }], project: options.project });
    const added = await findNewestChange(options.project);
    await change("delete_observations", { deletions: [{ entityName: entity.name, observations: [observation.text] }], project: options.project });
    tellChange("Saved.", [...(await findNewestChange(options.project)), ...added], options.after);
    await options.after();
  });
}

/** @param {any} entity @param {Options} options */
function askForRelation(entity, options) {
  const verb = h("input", { type: "text", placeholder: "uses" });
  const other = h("input", { type: "text" });
  openDialog({
    title: `Relation of ${entity.name}`,
    body: [h("label", { class: "field" }, `${entity.name} …`, verb), h("label", { class: "field" }, "Name of the other entity", other)],
    buttons: [{ label: "Cancel" }, { label: "Add", kind: "main", run: () => act("create_relations", { relations: [{ from: entity.name, to: other.value.trim(), relationType: verb.value.trim() }] }, "Added the relation.", options) }],
  });
  verb.focus();
}

/** @param {string} project @param {() => any} after */
export function askForEntity(project, after) {
  const name = h("input", { type: "text" });
  const type = h("input", { type: "text", placeholder: "service" });
  const observation = h("textarea", { rows: 3 });
  openDialog({
    title: "Add an entity",
    body: [h("label", { class: "field" }, "Name", name), h("label", { class: "field" }, "Type", type), h("label", { class: "field" }, "Observation", observation)],
    buttons: [{ label: "Cancel" }, { label: "Add", kind: "main", run: () => act("create_entities", { entities: [{ name: name.value.trim(), entityType: type.value.trim(), observations: observation.value.trim() ? [observation.value.trim()] : [] }] }, `Added ${name.value.trim()}.`, { project, after }) }],
  });
  name.focus();
}
