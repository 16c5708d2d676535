// @ts-check
/** Search over everything: one list, each hit with its kind, its age, and why it was found. */

import { call, callIn } from "../api.js";
import { fill, h, show as text } from "../dom.js";
import { head } from "../parts/head.js";
import { canWrite, changeMemories, forgetMemories, iconButton } from "../parts/memory.js";
import { copyButton, empty, fillWith } from "../parts/states.js";
import { age } from "../parts/time.js";
import { drawWhy } from "../parts/why.js";
import { place } from "../router.js";
import { getProject } from "../state.js";

const LIMIT = 30;
const CLIP = 600;
const LEAST_SCORE = 0.005; // what would be shown as 0
const ROUNDING = 0.02;
const MARKUP = /^\s*#{1,6} |```\w*/gm; // signs of Markdown that a single line does not need

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  const found = h("div", { "aria-live": "off" });
  const said = h("p", { role: "status" });
  main.append(head("Search", said), found);
  /** @param {import("../router.js").Route} route */
  const draw = (route) => {
    const query = route.query.get("q")?.trim() ?? "";
    const field = /** @type {HTMLInputElement | null} */ (document.querySelector(".bar form input"));
    if (field && field !== document.activeElement) field.value = query;
    if (!query) return void fill(found, empty("Type a question or some words above. Search looks through memories, the graph, conversations and the memory bank.", 'everkept find "how do webhooks retry"'));
    fill(found);
    return fillWith(found, () => search(query), ({ hits, warnings }) => {
      fill(said, hits.length === 1 ? "1 hit" : `${hits.length} hits`);
      return [
        warnings.map((/** @type {any} */ each) => h("p", { class: "mute small warning" }, ...text(each.message))),
        hits.length ? h("ol", { class: "rows hits" }, hits.map((hit) => h("li", null, drawHit(hit, () => draw(route))))) : empty("Nothing matches. Try other words.", null),
      ];
    });
  };
  await draw(first);
  return {
    update(/** @type {any} */ route) {
      void draw(route);
      return true;
    },
    keys: [
      { keys: "j", says: "Next hit", run: () => step(1) },
      { keys: "k", says: "Previous hit", run: () => step(-1) },
    ],
  };
}

/** @param {number} by */
function step(by) {
  const links = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".hits .open")]);
  const at = links.indexOf(/** @type {any} */ (document.activeElement));
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

/** @param {string} query */
async function search(query) {
  const project = getProject();
  const [all, memories] = await Promise.all([
    callIn(project, "unified_memory_search", { query, format: "json", options: { limit: LIMIT, ...(project ? {} : { all_projects: true }) } }),
    call("recall_memories", { query, limit: LIMIT, explain: true, ...(project ? { project } : { all_projects: true }) }).catch(() => ({ memories: [] })),
  ]);
  const why = new Map(memories.memories.map((/** @type {any} */ each) => [each.id, each]));
  const relevant = all.results.filter((/** @type {any} */ hit) => hit.relevance_score >= LEAST_SCORE);
  return { hits: relevant.map((/** @type {any} */ hit) => ({ ...hit, memory: why.get(hit.id) })), warnings: (all.warnings ?? []).filter((/** @type {any} */ each) => each.code !== "known_elsewhere") };
}

/** The parts of a hit's score. Importance and age order only memories among themselves, not this list. @param {any} hit @returns {Record<string, number>} */
function findReasons(hit) {
  const { importance, recency, ...parts } = hit.memory?.why ?? {};
  const sum = Object.values(parts).reduce((total, each) => total + each, 0);
  if (Math.abs(sum - hit.relevance_score) < ROUNDING) return parts;
  return { [hit.search_type === "semantic" ? "meaning" : hit.search_type ?? "keyword"]: hit.relevance_score };
}

/** @param {any} hit */
function placeOf(hit) {
  if (hit.type === "memory") return place("memories", hit.id);
  if (hit.type === "section") return place("bank", hit.file ?? "");
  if (hit.found_in === "graph") return place("graph", "", { find: hit.title ?? hit.content, project: hit.context?.project_path });
  return place("conversations", hit.id);
}

/** @param {any} hit @param {() => any} after */
function drawHit(hit, after) {
  const content = String(hit.content ?? "").replace(MARKUP, "").replace(/\s+/g, " ").trim();
  return h("article", { class: "row hit narrow-stack" },
    h("div", { class: "fields" },
      h("a", { class: "open", href: placeOf(hit) }, h("span", { class: "clip" }, ...text(content.slice(0, CLIP)))),
      h("div", { class: "meta" },
        h("span", { class: "badge" }, (hit.found_in ?? hit.type).replaceAll("_", " ")),
        hit.title && hit.title !== content ? h("span", null, ...text(hit.title)) : null,
        hit.context?.project_path ? h("code", null, ...text(hit.context.project_path)) : null),
      drawWhy(findReasons(hit), hit.relevance_score)),
    h("div", { class: "meta actions" }, age(hit.context?.timestamp ?? hit.memory?.created_at), copyButton(String(hit.content ?? ""), "Copy the text"), hit.memory && canWrite() ? [
      iconButton("pin", hit.memory.pinned ? "Unpin" : "Pin", () => changeMemories([hit.id], { pinned: !hit.memory.pinned }, hit.memory.pinned ? "Unpinned" : "Pinned", after), { "aria-pressed": String(Boolean(hit.memory.pinned)) }),
      iconButton("forget", "Forget", () => forgetMemories([hit.id], after)),
    ] : null));
}
