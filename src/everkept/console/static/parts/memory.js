// @ts-check
/** Memories as rows, and what can be done with them. Every page that shows memories uses this. */

import { call, change } from "../api.js";
import { h, icon, show } from "../dom.js";
import { place } from "../router.js";
import { getProject, nameProject, server } from "../state.js";
import { ask, openDialog } from "./dialog.js";
import { age, count } from "./time.js";
import { findNewestChange, tellChange, tellError } from "./toast.js";

/** @typedef {any} Memory as `list_memories` describes it */

/** @param {number} importance 0 to 1 */
export function drawImportance(importance) {
  const full = Math.round(importance * 4);
  return h("span", { class: "ticks", role: "img", "aria-label": `Importance ${importance.toFixed(2)}`, title: `Importance ${importance.toFixed(2)}` },
    [1, 2, 3, 4].map((each) => h("i", { class: each <= full ? "full" : "" })));
}

/** The badges of a memory. @param {Memory} memory @param {boolean} withProject @param {number} [most] tags */
export function drawTraits(memory, withProject, most = 3) {
  return [
    withProject && memory.project ? h("span", { class: "badge" }, ...show(nameProject(memory.project))) : null,
    memory.forgotten ? h("span", { class: "badge danger", title: memory.forgotten_reason ?? "" }, "forgotten") : null,
    memory.superseded_by ? h("span", { class: "badge warn" }, "replaced") : null,
    memory.automatic ? h("span", { class: "badge" }, "automatic") : null,
    h("span", null, memory.type),
    (memory.tags ?? []).slice(0, most).map((/** @type {string} */ tag) => h("span", { class: "chip" }, ...show(tag))),
    (memory.tags ?? []).length > most ? h("span", null, `+${memory.tags.length - most}`) : null,
  ];
}

/**
 * @param {Memory} memory
 * @param {{address: string, chosen?: boolean, checkbox?: any, withProject?: boolean}} options
 */
export function drawMemoryRow(memory, { address, chosen = false, checkbox = null, withProject = !getProject() }) {
  const gone = memory.forgotten || memory.superseded_by;
  return h("div", { class: `row ${checkbox ? "checked-row" : ""} ${chosen ? "chosen" : ""} ${memory.pinned ? "pinned" : ""}` },
    checkbox,
    h("div", { class: "two" },
      h("a", { class: `open line-of-text ${gone ? "gone" : ""}`, href: address, "aria-current": chosen ? "true" : null }, ...show(memory.content)),
      h("div", { class: "meta one-line" }, drawTraits(memory, withProject), memory.pinned ? h("span", { class: "unseen" }, "pinned") : null)),
    h("div", { class: "meta" }, drawImportance(memory.importance), age(memory.occurred_at ?? memory.created_at)));
}

/** The address of a memory. @param {Memory} memory @param {URLSearchParams} [query] */
export function placeOf(memory, query) {
  return place("memories", memory.id, query);
}

/**
 * Change memories together, with one toast and one undo.
 * @param {string[]} ids
 * @param {Record<string, any>} what arguments of `change_memories`
 * @param {string} done what was done, such as "Pinned"
 * @param {() => any} after
 */
export async function changeMemories(ids, what, done, after) {
  if (!ids.length) return;
  try {
    const made = await change("change_memories", { memory_ids: ids, ...what });
    tellChange(made.changed ? `${done} ${count(made.changed, "memory", "memories")}.` : "Nothing had to change.", made.changes, after);
    await after();
  } catch (error) {
    tellError(error);
  }
}

/** @param {string[]} ids @param {() => any} after */
export function forgetMemories(ids, after) {
  return changeMemories(ids, { forgotten: true }, "Forgot", after);
}

/** @param {string[]} ids @param {() => any} after */
export function askForTags(ids, after) {
  const added = h("input", { type: "text", placeholder: "decision, billing" });
  const removed = h("input", { type: "text" });
  const split = (/** @type {string} */ text) => text.split(",").map((each) => each.trim()).filter(Boolean);
  openDialog({
    title: `Tags of ${count(ids.length, "memory", "memories")}`,
    body: [h("label", { class: "field" }, "Add, separated by commas", added), h("label", { class: "field" }, "Remove", removed)],
    buttons: [{ label: "Cancel" }, { label: "Change tags", kind: "main", run: () => changeMemories(ids, { tags: { add: split(added.value), remove: split(removed.value) } }, "Changed the tags of", after) }],
  });
  added.focus();
}

/** @param {string[]} ids @param {number} now @param {() => any} after */
export function askForImportance(ids, now, after) {
  const range = h("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(now) });
  const shown = h("output", { class: "number" }, now.toFixed(2));
  range.addEventListener("input", () => (shown.textContent = Number(range.value).toFixed(2)));
  openDialog({
    title: "Importance",
    body: h("label", { class: "field" }, "From 0 to 1", range, shown),
    buttons: [{ label: "Cancel" }, { label: "Save", kind: "main", run: () => changeMemories(ids, { importance: Number(range.value) }, "Changed the importance of", after) }],
  });
}

/** @param {Memory} memory @param {() => any} after */
export async function editMemory(memory, after) {
  const whole = memory.clipped ? (await call("read_memory", { memory_id: memory.id, project: memory.project })).memory : memory;
  ask("Edit the memory", { label: "Text", value: whole.content, lines: true, hint: "The previous text stays in the log." }, "Save", async (text) => {
    await change("update_memory", { memory_id: memory.id, content: text, project: memory.project });
    tellChange("Saved.", await findNewestChange(memory.project), after);
    await after();
  });
}

/** @param {Memory} memory @param {() => any} after */
export async function promoteMemory(memory, after) {
  const target = memory.scope === "session" ? "project" : "user";
  try {
    await change("promote_memory", { memory_id: memory.id, target_scope: target, project: memory.project });
    tellChange(target === "user" ? "Promoted: it now belongs to you in all projects." : "Promoted to the project.", await findNewestChange(memory.project), after);
    await after();
  } catch (error) {
    tellError(error);
  }
}

export function canWrite() {
  return !server.read_only;
}

/** A small button of an icon. @param {string} name @param {string} label @param {() => any} run @param {Record<string, any>} [props] */
export function iconButton(name, label, run, props = {}) {
  return h("button", { type: "button", class: "button plain small icon-only", "aria-label": label, title: label, onclick: run, ...props }, icon(name));
}
