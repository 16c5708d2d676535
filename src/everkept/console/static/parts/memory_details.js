// @ts-check
/** One memory with its versions, and what can be done with it. */

import { call } from "../api.js";
import { h, show } from "../dom.js";
import { place } from "../router.js";
import { drawTextDiff } from "./diff.js";
import { askForImportance, askForTags, canWrite, changeMemories, drawImportance, drawTraits, editMemory, forgetMemories, iconButton, promoteMemory } from "./memory.js";
import { copyButton } from "./states.js";
import { age, count, when } from "./time.js";

/**
 * @param {string} id
 * @param {{project?: string, close: () => void, after: () => any, onRead?: (memory: any) => void}} options
 */
export async function drawMemoryDetails(id, { project, close, after, onRead }) {
  const { memory, versions } = await call("read_memory", { memory_id: id, project });
  onRead?.(memory);
  const ids = [memory.id];
  return h("div", null,
    h("div", { class: "head" }, h("h2", null, "Memory"), h("div", { class: "spring" }), copyButton(memory.id, "Copy the id"), iconButton("close", "Close (Esc)", close)),
    h("p", { class: `reading plain ${memory.forgotten ? "gone" : ""}` }, ...show(memory.content)),
    h("div", { class: "meta" }, drawTraits(memory, true, Infinity)),
    memory.superseded_by ? h("p", { class: "small" }, "A newer memory replaces it: ", h("a", { href: place("memories", memory.superseded_by) }, "open it")) : null,
    canWrite() ? drawActions(memory, ids, after) : null,
    h("section", null, h("h3", null, "About it"), h("dl", null, facts(memory))),
    memory.related_entities?.length
      ? h("section", null, h("h3", null, "Entities"), h("ul", { class: "line" }, memory.related_entities.map((/** @type {any} */ each) =>
        h("li", null, h("a", { class: "chip", href: place("graph", "", { find: each.name, project: memory.project }) }, ...show(each.name)))))) : null,
    h("section", null, h("h3", null, count(versions.length, "version")), drawVersions(versions)));
}

/** @param {any} memory @param {string[]} ids @param {() => any} after */
function drawActions(memory, ids, after) {
  const button = (/** @type {string} */ label, /** @type {() => any} */ run, kind = "") => h("button", { type: "button", class: `button small ${kind}`, onclick: run }, label);
  if (memory.forgotten) return h("div", { class: "line actions" }, button("Restore", () => changeMemories(ids, { forgotten: false }, "Restored", after), "main"));
  return h("div", { class: "line actions" },
    button("Edit", () => editMemory(memory, after)),
    button(memory.pinned ? "Unpin" : "Pin", () => changeMemories(ids, { pinned: !memory.pinned }, memory.pinned ? "Unpinned" : "Pinned", after)),
    button("Tags", () => askForTags(ids, after)),
    button("Importance", () => askForImportance(ids, memory.importance, after)),
    memory.scope === "user" ? null : button("Promote", () => promoteMemory(memory, after)),
    button("Forget", () => forgetMemories(ids, after), "danger"));
}

/** @param {any} memory */
function facts(memory) {
  /** @type {[string, any][]} */
  const rows = [
    ["Stored", when(memory.created_at)],
    ["Happened", when(memory.occurred_at)],
    ["Author", memory.author ? show(memory.author) : null],
    ["Tool", memory.source?.tool ? show(memory.source.tool) : null],
    ["File", memory.source?.file ? h("code", null, ...show(memory.source.file)) : null],
    ["Session", memory.session_id ? h("code", null, ...show(memory.session_id)) : null],
    ["Importance", drawImportance(memory.importance)],
    ["Recalled", count(memory.recalls ?? 0, "time")],
    ["Fades", memory.fades_at ? when(memory.fades_at) : null],
    ["Forgotten because", memory.forgotten_reason ? show(memory.forgotten_reason) : null],
    ["Id", h("code", null, memory.id)],
  ];
  return rows.filter(([, value]) => value !== null).map(([name, value]) => [h("dt", null, name), h("dd", null, ...[value].flat())]);
}

/** @param {any[]} versions newest first */
function drawVersions(versions) {
  const said = { insert: "Stored", update: "Changed", delete: "Forgotten", restore: "Restored" };
  return h("ul", { class: "versions" }, versions.map((version, index) => {
    const before = versions[index + 1]?.values;
    const altered = before && before.text !== version.values.text;
    return h("li", null,
      h("div", { class: "meta" }, /** @type {any} */ (said)[version.operation] ?? version.operation, " with ", h("code", null, ...show(version.tool)), version.client ? ` by ${version.client}` : "", age(version.at), h("a", { href: place("log", version.change) }, version.change)),
      altered ? drawTextDiff(before.text, version.values.text) : null);
  }));
}
