// @ts-check
/** Conversations: the list, and a reader that opens at the turn that was found. */

import { call, change } from "../api.js";
import { fill, h, icon, show as text } from "../dom.js";
import { ask, confirm, openDialog } from "../parts/dialog.js";
import { head, newsButton } from "../parts/head.js";
import { drawTokens, takeEnd } from "../parts/markdown.js";
import { iconButton } from "../parts/memory.js";
import { Rows } from "../parts/rows.js";
import { copyButton, empty, fillWith } from "../parts/states.js";
import { age, count, when } from "../parts/time.js";
import { findNewestChange, tellChange, tellError, tellReversible, toast } from "../parts/toast.js";
import { alterQuery, go, place } from "../router.js";
import { getOneProject, server } from "../state.js";

const TURNS = 40;

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  let route = first;
  const reader = h("aside", { class: "details reader", "aria-label": "The open conversation", hidden: true });
  const total = h("p", { class: "number", role: "status" });
  const folder = h("select", { "aria-label": "Folder", onchange: () => alterQuery((query) => (folder.value ? query.set("folder", folder.value) : query.delete("folder"))) });
  const words = h("input", { type: "search", placeholder: "Title", "aria-label": "Filter by title", value: route.query.get("text") ?? "" });
  words.addEventListener("change", () => alterQuery((query) => (words.value ? query.set("text", words.value) : query.delete("text"))));
  /** @type {string[]} */
  let excluded = [];
  /** @type {string[]} */
  let folders = [];
  const rows = new Rows({
    label: "Conversations",
    key: (each) => each.id,
    load: async (start, limit) => {
      const found = await call("list_conversations", { folder: route.query.get("folder"), text: route.query.get("text") ?? "", start, limit });
      return { items: found.conversations, total: found.total, folders: found.folders, excluded: found.excluded };
    },
    onFirst: (page) => {
      fill(total, count(page.total, "conversation"));
      excluded = page.excluded;
      folders = page.folders.map((/** @type {[string, number]} */ [name]) => name).filter((/** @type {string} */ name) => name && !excluded.includes(name));
      const chosen = route.query.get("folder") ?? "";
      fill(folder, h("option", { value: "" }, "All folders"), page.folders.map((/** @type {[string, number]} */ [name, size]) => h("option", { value: name, selected: name === chosen }, `${name} (${size})`)));
    },
    draw: (each) => h("div", { class: `row ${each.id === route.id ? "chosen" : ""}` },
      h("div", { class: "two" }, h("a", { class: "open line-of-text", href: place("conversations", each.id, route.query) }, ...text(each.title || "Without a title")),
        h("div", { class: "meta one-line" }, h("span", null, each.source), h("code", null, ...text(each.folder)), h("span", { class: "number" }, count(each.turns, "turn")))),
      h("div", { class: "meta" }, age(each.ended))),
    whenEmpty: () => (route.query.size ? empty("No conversation matches.", null, h("button", { type: "button", class: "button", onclick: () => go(place("conversations")) }, "Remove the filters")) : empty("Past conversations with assistants appear here after they are imported.", "everkept history import")),
  });
  const exclude = h("button", { type: "button", class: "button", onclick: () => openExcluded() }, "Folders");
  const news = newsButton(() => Promise.all([rows.reload(), drawReader()]));
  const split = h("div", { class: "split" }, rows.node, reader);
  main.append(head("Conversations", total, news.node, h("div", { class: "spring" }), words, folder, exclude), split);
  const close = () => go(place("conversations", "", route.query));

  function openExcluded() {
    /** @param {string} name @param {boolean} out */
    const set = async (name, out) => {
      await change("exclude_folder", { folder: name, excluded: out });
      tellReversible(out ? `${name} is no longer imported.` : `${name} is imported again.`, () => change("exclude_folder", { folder: name, excluded: !out }), () => rows.reload());
      await rows.reload();
      fill(list, drawFolders());
    };
    /** @param {string[]} names @param {boolean} out */
    const drawList = (names, out) => h("ul", { class: "short" }, names.map((name) => h("li", null, h("code", null, ...text(name)), server.read_only ? null : h("button", {
      type: "button", class: "button small", "aria-label": `${out ? "Stop importing" : "Import again"} ${name}`, onclick: () => void set(name, out),
    }, out ? "Stop importing" : "Import again"))));
    const drawFolders = () => [
      folders.length ? [h("h3", null, "Imported"), drawList(folders, true)] : null,
      excluded.length ? [h("h3", null, "Not imported"), drawList(excluded, false)] : null,
      folders.length || excluded.length ? null : h("p", { class: "mute" }, "No conversation was imported yet."),
    ];
    const list = h("div", { class: "fields" }, drawFolders());
    openDialog({ title: "Folders of conversations", body: list, buttons: [{ label: "Close" }] });
  }
  async function drawReader() {
    reader.hidden = !route.id;
    split.classList.toggle("open", Boolean(route.id));
    split.classList.toggle("reading-wide", Boolean(route.id));
    if (!route.id) return void fill(reader);
    const id = route.id;
    await fillWith(reader, () => readConversation(id), (found) => drawConversation(found, id, close, rows));
    reader.querySelector(".found")?.scrollIntoView({ block: "center" });
  }
  await Promise.all([rows.reload(), drawReader()]);
  return {
    close: () => rows.close(),
    changed: news.tell,
    /** @param {import("../router.js").Route} next */
    update(next) {
      const isSameList = String(next.query) === String(route.query);
      route = next;
      if (isSameList) rows.redraw();
      else void rows.reload();
      void drawReader();
      return true;
    },
    keys: [
      { keys: "j", says: "Next conversation", run: () => rows.move(1) },
      { keys: "k", says: "Previous conversation", run: () => rows.move(-1) },
      { keys: "Esc", says: "Close the conversation", run: close },
    ],
  };
}

/** Read a conversation, or the one of a turn, with its texts as Markdown. @param {string} id @param {string} [cursor] */
async function readConversation(id, cursor) {
  const found = await call("read_conversation", { id, limit: TURNS, cursor, format: "json" });
  const { texts } = await call("read_markdown", { texts: found.turns.map((/** @type {any} */ each) => each.text) });
  found.turns.forEach((/** @type {any} */ turn, /** @type {number} */ index) => {
    const { tokens, rest } = texts[index];
    turn.tokens = rest ? [...tokens, { tag: "pre", text: takeEnd(turn.text, rest) }] : tokens;
  });
  return found;
}

/** @param {any} found @param {string} asked @param {() => void} close @param {Rows<any>} rows */
function drawConversation(found, asked, close, rows) {
  const turns = h("ol", { class: "turns" }, found.turns.map((/** @type {any} */ each) => drawTurn(each, asked, found)));
  const more = h("div", { class: "more" });
  /** @param {string | undefined} cursor */
  const offerMore = (cursor) => fill(more, cursor ? h("button", { type: "button", class: "button", onclick: async () => {
    const page = await readConversation(found.conversation_id, cursor);
    turns.append(...page.turns.map((/** @type {any} */ each) => drawTurn(each, asked, found)));
    offerMore(page.next_cursor);
  } }, "More turns") : null);
  offerMore(found.next_cursor);
  const forget = () => confirm("Delete this conversation?", h("p", null, `This deletes ${count(found.total_turns, "turn")} permanently, and Everkept never imports them again. The assistant's own file stays.`), "Delete", async () => {
    await change("delete_conversations", { conversations: [found.conversation_id] });
    toast("Deleted.");
    close();
    await rows.reload();
  });
  return h("div", null,
    h("div", { class: "head" }, h("h2", null, ...text(found.title || "Without a title")), h("div", { class: "spring" }), copyButton(found.conversation_id, "Copy the id"),
      server.read_only ? null : iconButton("forget", "Delete the conversation", forget), iconButton("close", "Close (Esc)", close)),
    h("p", { class: "meta" }, found.source, h("code", null, ...text(found.project_path ?? "")), when(found.started), h("span", { class: "number" }, count(found.total_turns, "turn"))),
    h("p", { class: "mute small" }, "This is a record of what was said. Nothing in it is an instruction."),
    turns, more);
}

/** @param {any} turn @param {string} asked @param {any} conversation */
function drawTurn(turn, asked, conversation) {
  const remember = () => ask("Remember this", { label: "One self-contained statement", value: turn.text.slice(0, 2000), lines: true }, "Remember", async (said) => {
    const project = getOneProject();
    try {
      const stored = await change("store_memory", { content: said, project, source: { conversation: conversation.conversation_id } }).catch(async (error) => {
        if (error.kind !== "invalid_input") throw error;
        return change("store_memory", { content: said, project });
      });
      tellChange("Remembered.", await findNewestChange(stored.project ?? project ?? "@user"));
    } catch (error) {
      tellError(error);
      throw error;
    }
  });
  return h("li", { class: `turn ${turn.author} ${turn.is_asked || turn.id === asked ? "found" : ""}`, id: turn.id },
    h("div", { class: "meta" }, h("strong", null, turn.author === "user" ? "You" : turn.author === "assistant" ? "Assistant" : turn.author), turn.type && turn.type !== "conversation" ? h("span", { class: "badge" }, turn.type.replaceAll("_", " ")) : null, age(turn.timestamp), h("span", { class: "spring" }),
      copyButton(turn.text, "Copy the turn"), server.read_only ? null : h("button", { type: "button", class: "button plain small", "aria-label": "Remember this", onclick: remember }, icon("plus"), h("span", { class: "wide-only" }, "Remember this"))),
    turn.type && /tool/.test(turn.type) ? h("details", null, h("summary", null, "Output of a tool"), h("div", { class: "prose" }, ...drawTokens(turn.tokens))) : h("div", { class: "prose" }, ...drawTokens(turn.tokens)));
}
