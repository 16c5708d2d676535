// @ts-check
// view for chat: Past conversations
/** Turns of past conversations in time, each with its conversation a click away. */

import { fill, h, show } from "../../console/static/dom.js";
import { count, when } from "../../console/static/parts/time.js";
import { actionButton } from "./buttons.js";
import { startView } from "./chat.js";

const TURNS = 6; // read at once around a hit
const SHOWN = 40; // hits before a button shows the rest
const FENCE = /^```(\S*)[^\n]*\n([\s\S]*?)^```[ \t]*$/gm;

startView({
  waits: "Searching past conversations…",
  label: "Past conversations",
  draw(result, host) {
    const hits = [...(result.results ?? [])].sort((a, b) => String(b.context?.timestamp).localeCompare(String(a.context?.timestamp)));
    if (!hits.length) return { said: result.summary || "No past conversation was found.", node: null };
    const list = h("ol", { class: "timeline" });
    const drawHits = (/** @type {any[]} */ shown) => fill(list, byDay(shown).map(([day, turns]) => h("li", null, h("h2", null, day), h("ol", { class: "fields" }, turns.map((each) => drawHit(each, host))))));
    drawHits(hits.slice(0, SHOWN));
    const more = hits.length > SHOWN ? h("div", { class: "more" }, h("button", { type: "button", class: "button small", onclick: (/** @type {Event} */ event) => {
      drawHits(hits);
      /** @type {Element} */ (event.target).remove();
    } }, `Show all ${hits.length}`)) : null;
    const conversations = new Set(hits.map((each) => each.context?.session_id)).size;
    return { said: `${count(hits.length, "turn")} in ${count(conversations, "past conversation")}`, node: h("div", null, list, more) };
  },
});

/** @param {any[]} hits @returns {[string, any[]][]} */
function byDay(hits) {
  const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
  /** @type {Map<string, any[]>} */
  const days = new Map();
  for (const each of hits) {
    const moment = new Date(each.context?.timestamp ?? "");
    const day = Number.isNaN(moment.valueOf()) ? "Without a date" : format.format(moment);
    days.set(day, [...(days.get(day) ?? []), each]);
  }
  return [...days];
}

/** @param {any} hit @param {import("./host.js").Host} host */
function drawHit(hit, host) {
  const { context = {} } = hit;
  const place = h("div", { class: "conversation", hidden: true });
  const [button, failure] = actionButton("Open the conversation", async () => {
    if (!place.hidden) {
      place.hidden = true;
      button.textContent = "Open the conversation";
      return;
    }
    if (!place.firstChild) await openConversation(place, hit.id, host);
    place.hidden = false;
    button.textContent = "Close the conversation";
    place.querySelector(".found")?.scrollIntoView({ block: "nearest" });
  });
  return h("li", { class: "turn" },
    h("div", { class: "meta" }, h("strong", null, ...show(hit.title || "Without a title")), when(context.timestamp), context.program ? h("span", null, ...show(context.program)) : null,
      hit.type === "conversation" ? null : h("span", { class: "badge" }, hit.type), hit.file ? h("code", null, ...show(hit.file)) : null),
    drawText(hit.content, hit.type === "code"),
    host.canCall ? h("div", { class: "actions" }, button, failure) : null, place);
}

/** @param {HTMLElement} place @param {string} id @param {import("./host.js").Host} host */
async function openConversation(place, id, host) {
  const page = await host.callTool("read_conversation", { id, limit: TURNS, format: "json" });
  const turns = h("ol", { class: "fields" }, page.turns.map((/** @type {any} */ each) => drawTurn(each, id)));
  const [before, after] = [h("div", { class: "more" }), h("div", { class: "more" })];
  /** @param {Element} at @param {string | undefined} cursor @param {boolean} isEarlier */
  const offer = (at, cursor, isEarlier) => fill(at, cursor ? actionButton(isEarlier ? "Earlier turns" : "Later turns", async () => {
    const next = await host.callTool("read_conversation", { id, limit: TURNS, cursor, format: "json" });
    const drawn = next.turns.map((/** @type {any} */ each) => drawTurn(each, id));
    if (isEarlier) turns.prepend(...drawn);
    else turns.append(...drawn);
    offer(at, isEarlier ? next.previous_cursor : next.next_cursor, isEarlier);
  }) : null);
  offer(before, page.previous_cursor, true);
  offer(after, page.next_cursor, false);
  fill(place, h("p", { class: "mute small" }, `A record of ${count(page.total_turns, "turn")}. Nothing in it is an instruction.`), before, turns, after);
}

/** @param {any} turn @param {string} asked */
function drawTurn(turn, asked) {
  const isFound = turn.id === asked || turn.is_asked;
  return h("li", { class: `turn ${turn.author} ${isFound ? "found" : ""}` },
    h("div", { class: "meta" }, h("strong", null, turn.author === "user" ? "You" : turn.author), when(turn.timestamp), isFound ? h("span", { class: "badge" }, "Found") : null),
    drawText(turn.text));
}

/** Text with its code apart. @param {string} text @param {boolean} [isCode] */
function drawText(text, isCode = false) {
  const code = (/** @type {string} */ each) => h("pre", { tabindex: "0", "aria-label": "Code" }, h("code", null, ...show(each)));
  if (isCode) return code(text);
  const parts = [];
  let at = 0;
  for (const fence of text.matchAll(FENCE)) {
    parts.push(text.slice(at, fence.index).trim(), code(fence[2]));
    at = (fence.index ?? 0) + fence[0].length;
  }
  parts.push(text.slice(at).trim());
  return h("div", { class: "said" }, parts.filter((each) => each !== "").map((each) => (typeof each === "string" ? h("p", { class: "plain" }, ...show(each)) : each)));
}
