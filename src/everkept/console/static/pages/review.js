// @ts-check
/** Review: memories that hooks stored by themselves. Keep, edit or forget each. */

import { call } from "../api.js";
import { announce, fill, h, show as text } from "../dom.js";
import { head, newsButton } from "../parts/head.js";
import { canWrite, changeMemories, drawImportance, editMemory, forgetMemories } from "../parts/memory.js";
import { empty, fillWith } from "../parts/states.js";
import { age, count, formatMoment, formatUntil } from "../parts/time.js";
import { place } from "../router.js";
import { getProject, nameProject } from "../state.js";

const LIMIT = 200;

/** @param {HTMLElement} main */
export async function show(main) {
  const list = h("div", { class: "fields" });
  const said = h("p", { role: "status" });
  /** @type {any[]} */
  let memories = [];
  let at = 0;
  const draw = () => fillWith(list, async () => call("list_memories", { project: getProject(), flag: ["automatic"], limit: LIMIT }), (found) => {
    memories = found.memories;
    at = Math.min(at, Math.max(0, memories.length - 1));
    fill(said, found.total ? `${count(found.total, "memory", "memories")} to review` : "");
    if (!memories.length) return empty("Memories that hooks store by themselves wait here until you keep or forget them. No memory is waiting.", "everkept setup claude-code --hooks");
    return drawSessions();
  });
  function drawSessions() {
    const sessions = Map.groupBy(memories, (each) => each.session_id ?? "");
    return [...sessions].map(([session, group]) => h("section", { class: "panel" },
      h("div", { class: "head" }, h("h2", null, session ? "Session " : "Without a session", session ? h("code", null, ...text(session.slice(0, 40))) : null), h("p", { class: "mute" }, age(group[0].created_at)), h("div", { class: "spring" }),
        group.length > 1 && canWrite() ? h("button", { type: "button", class: "button small", onclick: () => forgetMemories(group.map((each) => each.id), draw) }, `Forget all ${group.length}`) : null),
      h("ul", { class: "review" }, group.map(drawCard))));
  }
  /** @param {any} memory */
  function drawCard(memory) {
    const index = memories.indexOf(memory);
    return h("li", { class: "review-card", tabindex: index === at ? "0" : "-1", "data-at": index, onfocus: () => (at = index) },
      h("p", { class: "plain" }, ...text(memory.content)),
      h("div", { class: "meta" }, getProject() ? null : h("span", { class: "badge" }, ...text(nameProject(memory.project))), h("span", null, memory.type), drawImportance(memory.importance), age(memory.created_at),
        memory.source?.tool ? h("span", null, "from ", ...text(memory.source.tool)) : null, memory.source?.file ? h("code", null, ...text(memory.source.file)) : null,
        memory.fades_at ? h("span", { title: formatMoment(memory.fades_at) }, `fades ${formatUntil(memory.fades_at)}`) : null, h("a", { href: place("memories", memory.id) }, "details")),
      canWrite() ? h("div", { class: "line" },
        h("button", { type: "button", class: "button small", onclick: () => keep(memory) }, "Keep"),
        h("button", { type: "button", class: "button small", onclick: () => editMemory(memory, draw) }, "Edit"),
        h("button", { type: "button", class: "button small danger", onclick: () => forget(memory) }, "Forget")) : null);
  }
  /** @param {number} by */
  const move = (by) => {
    if (!memories.length) return;
    at = Math.max(0, Math.min(memories.length - 1, at + by));
    const card = /** @type {HTMLElement | null} */ (list.querySelector(`[data-at="${at}"]`));
    card?.focus();
    card?.scrollIntoView({ block: "nearest" });
  };
  const stay = async () => {
    await draw();
    move(0);
  };
  // As `everkept review --keep` does: what is pinned does not fade.
  const keep = (/** @type {any} */ memory) => changeMemories([memory.id], { pinned: true }, "Kept", stay);
  const forget = (/** @type {any} */ memory) => forgetMemories([memory.id], stay);
  const news = newsButton(() => draw());
  main.append(head("Review", said, news.node, h("div", { class: "spring" }), h("p", { class: "small keys-hint" }, h("kbd", null, "J"), " ", h("kbd", null, "K"), " move, ", h("kbd", null, "Y"), " keep, ", h("kbd", null, "N"), " forget")), list);
  await draw();
  const withCurrent = (/** @type {(memory: any) => any} */ run) => () => memories[at] && canWrite() && void run(memories[at]);
  announce(said.textContent ?? "");
  return {
    changed: (/** @type {boolean} */ byOthers) => byOthers && news.tell(true),
    keys: [
      { keys: "j", says: "Next memory", run: () => move(1) },
      { keys: "k", says: "Previous memory", run: () => move(-1) },
      { keys: "y", says: "Keep", run: withCurrent(keep) },
      { keys: "n", says: "Forget", run: withCurrent(forget) },
      { keys: "e", says: "Edit", run: withCurrent((memory) => editMemory(memory, draw)) },
    ],
  };
}
