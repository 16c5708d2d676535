// @ts-check
/** Memory bank: the project's Markdown files, read and edited. */

import { call, change } from "../api.js";
import { fill, h, icon, show as text } from "../dom.js";
import { drawTextDiff } from "../parts/diff.js";
import { ask } from "../parts/dialog.js";
import { head, newsButton } from "../parts/head.js";
import { renderMarkdown } from "../parts/markdown.js";
import { empty, failure, fillWith } from "../parts/states.js";
import { tellReversible } from "../parts/toast.js";
import { count } from "../parts/time.js";
import { go, place } from "../router.js";
import { server } from "../state.js";

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  let route = first;
  const files = h("nav", { class: "facets", "aria-label": "Files" });
  const content = h("div", null);
  const where = h("p", null);
  const search = h("button", { type: "button", class: "button", hidden: true, onclick: () => askForSearch() }, "Search the bank");
  let isReading = true; // a file; otherwise it is edited, or hits of a search are shown
  const news = newsButton(() => drawAll(), content);
  main.append(head("Memory bank", where, news.node, h("div", { class: "spring" }), search), h("div", { class: "split with-facets" }, files, content));
  const outline = h("section", { class: "outline" });
  /** @type {string[]} */
  let names = [];

  async function drawFiles() {
    try {
      const [listed, status] = await Promise.all([call("list_memory_bank_files"), call("get_memory_bank_status")]);
      names = listed.files;
      files.hidden = search.hidden = false;
      fill(where, h("code", null, ...text(status.path ?? "")));
      const shown = route.id || names[0];
      fill(files, h("section", null, h("h2", null, "Files"), h("ul", null, names.map((name) => h("li", null, h("a", { class: "file", href: place("bank", name), "aria-current": name === shown ? "page" : null }, ...text(name)))))), outline);
      return true;
    } catch (error) {
      const isMissing = /** @type {any} */ (error).kind === "bank_not_found";
      files.hidden = search.hidden = true;
      fill(content, isMissing ? empty("A memory bank keeps a project's context in Markdown files beside its code. No memory bank is selected.", "everkept console --path FOLDER") : failure(error, drawFiles));
      return false;
    }
  }
  async function drawFile() {
    const name = route.id || names[0];
    isReading = true;
    if (!name) return void fill(content, empty("The memory bank has no file yet.", null));
    fill(outline);
    await fillWith(content, async () => {
      const file = await call("read_memory_bank_file", { filename: name });
      return { file, body: /\.(md|markdown)$/i.test(name) ? await renderMarkdown(file.content) : h("pre", { tabindex: "0" }, ...text(file.content)) };
    }, ({ file, body }) => {
      drawOutline(body);
      return h("div", { class: "panel sheet" },
        h("div", { class: "head" }, h("h2", null, ...text(name)), h("div", { class: "spring" }), server.read_only ? null : h("button", { type: "button", class: "button small", onclick: () => edit(name, file) }, icon("edit"), "Edit")),
        file.content.trim() ? body : h("p", { class: "mute" }, "This file is empty."));
    });
  }
  /** Headings of the file, each of which leads to its place. @param {HTMLElement} body */
  function drawOutline(body) {
    const headings = /** @type {HTMLElement[]} */ ([...body.querySelectorAll(":is(h3, h4, h5)")]);
    if (headings.length < 3) return void fill(outline);
    fill(outline, h("h2", null, "In this file"), h("ul", null, headings.map((each) => h("li", { class: `deep-${each.tagName.toLowerCase()}` }, h("button", { type: "button", title: each.textContent, onclick: () => {
      each.tabIndex = -1;
      each.focus({ preventScroll: true });
      each.scrollIntoView({ block: "start" });
    } }, h("span", null, each.textContent))))));
  }
  /** @param {string} name @param {any} file */
  function edit(name, file) {
    const area = h("textarea", { class: "mono tall", "aria-label": name, value: file.content, spellcheck: "false" });
    const problem = h("div", { class: "fields", role: "alert" });
    const save = async () => {
      fill(problem);
      try {
        await change("write_memory_bank_file", { filename: name, content: area.value, ifMatchEtag: file.etag });
        const before = file.content;
        tellReversible(`Saved ${name}.`, () => putBack(name, before), drawAll);
        await drawAll();
      } catch (error) {
        const { message, hint, kind } = /** @type {any} */ (error);
        if (kind !== "ETAG_MISMATCH") return void fill(problem, h("p", { class: "danger-text" }, `${message} ${hint ?? ""}`));
        const theirs = await call("read_memory_bank_file", { filename: name });
        fill(problem, h("p", { class: "danger-text" }, `Another program changed ${name} since you opened it. Nothing was saved.`),
          h("p", { class: "line" }, "From its text to yours:", h("button", { type: "button", class: "button small", onclick: () => {
            file = theirs;
            void save();
          } }, "Save mine anyway")),
          drawTextDiff(theirs.content, area.value));
      }
    };
    isReading = false;
    fill(outline);
    fill(content, h("div", { class: "panel sheet" }, h("div", { class: "head" }, h("h2", null, ...text(name)), h("div", { class: "spring" }), h("button", { type: "button", class: "button small", onclick: drawAll }, "Cancel"), h("button", { type: "button", class: "button small main", onclick: save }, "Save")), problem, area));
    area.focus();
  }
  /** @param {string} name @param {string} before */
  async function putBack(name, before) {
    const now = await call("read_memory_bank_file", { filename: name });
    await change("write_memory_bank_file", { filename: name, content: before, ifMatchEtag: now.etag });
  }
  function askForSearch() {
    ask("Search the bank", { label: "Words" }, "Search", async (query) => {
      const found = await call("search_memory_bank", { query });
      const hits = [...found.sections, ...found.results];
      isReading = false;
      fill(outline);
      fill(content, h("div", { class: "head" }, h("h2", null, hits.length ? count(hits.length, "hit") : "Nothing matches."), h("div", { class: "spring" }), h("button", { type: "button", class: "button small", onclick: drawAll }, "Back to the file")), hits.length ? h("ul", { class: "rows" }, hits.map((/** @type {any} */ hit) => h("li", null, h("div", { class: "row" }, h("div", null,
        h("a", { class: "open", href: place("bank", hit.file) }, ...text(hit.heading ? `${hit.file}: ${hit.heading}` : `${hit.file}, line ${hit.line}`)), h("p", { class: "clip soft" }, ...text(hit.text ?? hit.content))))))) : null);
    });
  }
  async function drawAll() {
    if (await drawFiles()) await drawFile();
  }
  await drawAll();
  return {
    changed: (/** @type {boolean} */ byOthers) => isReading && news.tell(byOthers),
    /** @param {import("../router.js").Route} next */
    update(next) {
      route = next;
      void drawAll();
      return true;
    },
    keys: [{ keys: "Esc", says: "Back to the first file", run: () => go(place("bank")) }],
  };
}
