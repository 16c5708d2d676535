// @ts-check
// view for chat: Memories
/** Recalled memories as cards. Each says why it was found, and can be pinned or forgotten. */

import { fill, h, show } from "../../console/static/dom.js";
import { age, count } from "../../console/static/parts/time.js";
import { drawWhy } from "../../console/static/parts/why.js";
import { actionButton } from "./buttons.js";
import { startView } from "./chat.js";

const SHOWN = 20; // cards before a button shows the rest

startView({
  waits: "Recalling…",
  label: "Memories",
  draw(result, host, args) {
    const memories = result.memories ?? [];
    if (!memories.length) return { said: "No memory was found.", node: null };
    /** @type {Promise<any> | null} */
    let explained = null;
    const explain = () => (explained ??= host.callTool("recall_memories", { ...args, explain: true }).catch((error) => {
      explained = null;
      throw error;
    }));
    const list = h("ul", { class: "fields" });
    const drawCards = (/** @type {any[]} */ shown) => fill(list, shown.map((each) => drawCard(each, host, args, explain)));
    drawCards(memories.slice(0, SHOWN));
    const more = memories.length > SHOWN ? h("div", { class: "more" }, h("button", { type: "button", class: "button small", onclick: (/** @type {Event} */ event) => {
      drawCards(memories);
      /** @type {Element} */ (event.target).remove();
    } }, `Show all ${memories.length}`)) : null;
    return { said: count(memories.length, "memory", "memories"), node: h("div", null, list, more) };
  },
});

/** @param {any} memory @param {import("./host.js").Host} host @param {any} args @param {() => Promise<any>} explain */
function drawCard(memory, host, args, explain) {
  const named = memory.project ?? args.project;
  const project = named ? { project: named } : {};
  const card = h("li", { class: "turn card" });
  const why = h("div", null);
  let isPinned = Boolean(memory.pinned);
  if (memory.why) fill(why, drawWhy(memory.why, memory.relevance_score));

  function draw() {
    card.classList.toggle("pinned", isPinned);
    fill(card,
      h("p", { class: "plain" }, ...show(memory.content)),
      h("div", { class: "meta" }, h("span", { class: "badge" }, memory.scope), h("span", null, memory.type), age(memory.created_at), isPinned ? h("span", null, "Pinned") : null, memory.automatic ? h("span", null, "Automatic") : null,
        memory.tags.map((/** @type {string} */ each) => h("span", { class: "chip" }, ...show(each)))),
      why,
      host.canCall ? h("div", { class: "line actions" }, actionButton(isPinned ? "Unpin" : "Pin", pin), memory.why ? null : actionButton("Why", showWhy), actionButton("Forget", forget, "danger")) : null);
  }
  async function pin() {
    await host.callTool("update_memory", { memory_id: memory.id, pinned: !isPinned, ...project });
    isPinned = !isPinned;
    draw();
  }
  async function showWhy() {
    const found = (await explain()).memories.find((/** @type {any} */ each) => each.id === memory.id);
    if (!found?.why) throw new Error("This memory is no longer among the results.");
    memory.why = found.why;
    fill(why, drawWhy(found.why, found.relevance_score));
    draw();
  }
  async function forget() {
    await host.callTool("forget_memory", { memory_id: memory.id, reason: "Forgotten in the chat", ...project });
    fill(card, h("p", { class: "mute" }, "Forgotten. To restore it, run ", h("code", null, "everkept undo"), "."));
  }
  draw();
  return card;
}
