// @ts-check
/** Memories: a list to filter, select and change. */

import { call } from "../api.js";
import { announce, fill, h } from "../dom.js";
import { drawFacets } from "../parts/facets.js";
import { head, newsButton } from "../parts/head.js";
import { askForImportance, askForTags, canWrite, changeMemories, drawMemoryRow, editMemory, forgetMemories, placeOf } from "../parts/memory.js";
import { drawMemoryDetails } from "../parts/memory_details.js";
import { Rows } from "../parts/rows.js";
import { empty, fillWith } from "../parts/states.js";
import { count } from "../parts/time.js";
import { alterQuery, go, place } from "../router.js";
import { getProject } from "../state.js";

const TRAITS = { flag: "State", type: "Kind", scope: "Scope", tag: "Tags", author: "Author", session: "Session", project: "Project" };
const MOST_SELECTED = 1000; // in one change
const AGES = /** @type {const} */ ([["1", "last 24 hours"], ["7", "last 7 days"], ["30", "last 30 days"], ["365", "last year"]]);
const DAY = 86_400_000; // milliseconds

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  let route = first;
  /** @type {Map<string, any>} */
  const selected = new Map();
  /** @type {any} */
  let opened = null;

  const details = h("aside", { class: "details", "aria-label": "The open memory", hidden: true });
  const facets = h("div", { class: "facets closed", id: "facets" });
  const total = h("p", { class: "number", role: "status" });
  const bulk = h("div", { class: "line bulk", hidden: true });
  const sort = h("select", { "aria-label": "Order", onchange: () => alterQuery((query) => query.set("sort", sort.value)) },
    [["newest", "Newest first"], ["oldest", "Oldest first"], ["importance", "Most important first"]].map(([value, label]) => h("option", { value, selected: value === (route.query.get("sort") ?? "newest") }, label)));
  const words = h("input", { type: "search", placeholder: "Filter by text", "aria-label": "Filter by text", value: route.query.get("text") ?? "" });
  words.addEventListener("change", () => alterQuery((query) => (words.value ? query.set("text", words.value) : query.delete("text"))));

  const rows = new Rows({
    label: "Memories",
    key: (memory) => memory.id,
    load: async (start, limit) => {
      const found = await call("list_memories", { ...selection(), start, limit });
      return { items: found.memories, total: found.total, facets: found.facets };
    },
    onFirst: (page) => {
      fill(total, count(page.total, "memory", "memories"));
      announce(count(page.total, "memory", "memories"));
      const trimmed = getProject() ? { ...page.facets, project: [] } : page.facets;
      fill(facets, page.total || isFiltered() ? drawAges() : null, drawFacets(trimmed, TRAITS, (trait) => route.query.getAll(trait), toggleTrait));
    },
    draw: (memory) => drawMemoryRow(memory, {
      address: placeOf(memory, route.query),
      chosen: memory.id === route.id,
      checkbox: canWrite() ? h("input", { type: "checkbox", "aria-label": "Select", checked: selected.has(memory.id), onchange: () => select(memory) }) : null,
    }),
    whenEmpty: () => (isFiltered()
      ? empty("No memory matches.", null, h("button", { type: "button", class: "button", onclick: () => go(place("memories")) }, "Remove the filters"))
      : empty("Memories appear here when an assistant stores one, or when you do.", 'everkept remember "We use PostgreSQL"')),
  });
  const news = newsButton(() => refresh());
  const facetSwitch = h("button", { type: "button", class: "button facet-switch", "aria-controls": "facets", onclick: () => facets.classList.toggle("closed") }, "Filters");
  const split = h("div", { class: "split with-facets" }, facets, rows.node, details);
  main.append(head("Memories", total, news.node, h("div", { class: "spring" }), facetSwitch, words, sort), bulk, split);

  function selection() {
    const query = route.query;
    const asked = Object.fromEntries(Object.keys(TRAITS).filter((trait) => trait !== "project" && query.has(trait)).map((trait) => [trait, query.getAll(trait)]));
    const age = Number(query.get("days"));
    return { ...asked, after: age > 0 ? new Date(Date.now() - age * DAY).toISOString() : undefined, project: query.get("project") ?? getProject(), text: query.get("text") ?? "", sort: query.get("sort") ?? "newest" };
  }
  function drawAges() {
    const now = route.query.get("days");
    return h("section", null, h("h2", null, "Age"), h("ul", null, AGES.map(([days, label]) => h("li", null, h("button", {
      type: "button", "aria-pressed": String(days === now), onclick: () => alterQuery((query) => (days === now ? query.delete("days") : query.set("days", days))),
    }, h("span", null, label))))));
  }
  function isFiltered() {
    return [...route.query.keys()].some((name) => name !== "sort");
  }
  /** @param {string} trait @param {string} value */
  function toggleTrait(trait, value) {
    alterQuery((query) => {
      const others = query.getAll(trait).filter((each) => each !== value);
      const was = query.getAll(trait).length !== others.length;
      query.delete(trait);
      for (const each of was ? others : [...others, value]) query.append(trait, each);
    });
  }
  /** @param {any} memory */
  function select(memory) {
    if (selected.has(memory.id)) selected.delete(memory.id);
    else if (selected.size < MOST_SELECTED) selected.set(memory.id, memory);
    drawBulk();
  }
  function drawBulk() {
    bulk.hidden = !selected.size;
    const ids = [...selected.keys()];
    const button = (/** @type {string} */ label, /** @type {() => any} */ run, kind = "") => h("button", { type: "button", class: `button small ${kind}`, onclick: run }, label);
    fill(bulk, h("strong", { class: "number", role: "status" }, `${selected.size} selected`),
      button("Pin", () => changeMemories(ids, { pinned: true }, "Pinned", finish)),
      button("Unpin", () => changeMemories(ids, { pinned: false }, "Unpinned", finish)),
      button("Tags", () => askForTags(ids, finish)),
      button("Importance", () => askForImportance(ids, 0.5, finish)),
      button("Forget", () => forgetMemories(ids, finish), "danger"),
      button("Restore", () => changeMemories(ids, { forgotten: false }, "Restored", finish)),
      button("Clear", () => { selected.clear(); rows.redraw(); drawBulk(); }));
  }
  async function finish() {
    selected.clear();
    drawBulk();
    await refresh();
  }
  async function refresh() {
    await Promise.all([rows.reload(), drawDetails()]);
  }
  const close = () => go(place("memories", "", route.query));
  async function drawDetails() {
    details.hidden = !route.id;
    split.classList.toggle("open", Boolean(route.id));
    if (!route.id) return void ((opened = null), fill(details));
    await fillWith(details, () => drawMemoryDetails(route.id, { close, after: refresh, onRead: (memory) => (opened = memory) }), (node) => node);
  }
  const current = () => rows.current() ?? opened;
  /** @param {(memory: any) => any} run */
  const withCurrent = (run) => () => {
    const memory = current();
    if (memory && canWrite()) void run(memory);
  };

  /** Act on the selection, or on the current memory. @param {(ids: string[], memory: any) => any} run */
  const withChosen = (run) => withCurrent((memory) => run(selected.size ? [...selected.keys()] : [memory.id], memory));

  await Promise.all([rows.reload(), drawDetails()]);
  return {
    close: () => rows.close(),
    changed: news.tell,
    /** @param {import("../router.js").Route} next */
    update(next) {
      const isSameList = listKey(next) === listKey(route);
      route = next;
      words.value = route.query.get("text") ?? "";
      if (isSameList) rows.redraw();
      else void rows.reload();
      void drawDetails();
      return true;
    },
    keys: [
      { keys: "j", says: "Next memory", run: () => rows.move(1) },
      { keys: "k", says: "Previous memory", run: () => rows.move(-1) },
      { keys: "x", says: "Select", run: withCurrent((memory) => { select(memory); rows.redraw(); }) },
      { keys: "p", says: "Pin or unpin", run: withChosen((ids, memory) => changeMemories(ids, { pinned: !memory.pinned }, memory.pinned ? "Unpinned" : "Pinned", finish)) },
      { keys: "e", says: "Edit", run: withCurrent((memory) => editMemory(memory, refresh)) },
      { keys: "t", says: "Change tags", run: withChosen((ids) => askForTags(ids, finish)) },
      { keys: "#", says: "Forget", run: withChosen((ids) => forgetMemories(ids, finish)) },
      { keys: "Esc", says: "Close the memory", run: close },
    ],
  };
}

/** @param {import("../router.js").Route} route */
function listKey(route) {
  return `${getProject()} ${route.query}`;
}
