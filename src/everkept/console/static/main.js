// @ts-check
/** The frame around every page: rail, search, project, keys, live changes. */

import { begin, hasJustWritten, lock, track, useToken, watch } from "./api.js";
import { announce, fill, h, icon } from "./dom.js";
import { listenForKeys, openKeyList, openPalette, setGeneralKeys, setPageKeys } from "./keys.js";
import { failure } from "./parts/states.js";
import { tellError, undoLast } from "./parts/toast.js";
import { go, place, readRoute } from "./router.js";
import * as state from "./state.js";

/**
 * A page fills `main` and may return what it wants to be told.
 * @typedef {{close?: () => void, changed?: (byOthers: boolean) => void, keys?: import("./keys.js").Command[], update?: (route: import("./router.js").Route) => boolean}} Shown
 */

/** @type {{name: string, title: string, key: string, needs?: () => boolean, follows?: "itself" | "all", load: () => Promise<{show: (main: HTMLElement, route: import("./router.js").Route) => Shown | Promise<Shown>}>}[]} */
const PAGES = [
  { name: "overview", title: "Overview", key: "o", follows: "all", load: () => import("./pages/overview.js") },
  { name: "search", title: "Search", key: "s", load: () => import("./pages/search.js") },
  { name: "memories", title: "Memories", key: "m", needs: () => state.has("memories"), load: () => import("./pages/memories.js") },
  { name: "review", title: "Review", key: "r", needs: () => state.has("memories"), load: () => import("./pages/review.js") },
  { name: "graph", title: "Graph", key: "g", needs: () => state.has("graph"), load: () => import("./pages/graph.js") },
  { name: "conversations", title: "Conversations", key: "c", needs: () => state.has("history") && state.isOwner(), follows: "itself", load: () => import("./pages/conversations.js") },
  { name: "bank", title: "Memory bank", key: "b", needs: () => state.has("bank") && state.isOwner(), follows: "itself", load: () => import("./pages/bank.js") },
  { name: "log", title: "Log", key: "l", load: () => import("./pages/log.js") },
  { name: "projects", title: "Projects", key: "p", follows: "all", load: () => import("./pages/projects.js") },
  { name: "health", title: "Health", key: "h", needs: state.isOwner, follows: "itself", load: () => import("./pages/health.js") },
  { name: "team", title: "Team", key: "t", needs: state.isOwner, follows: "itself", load: () => import("./pages/team.js") },
  { name: "care", title: "Care", key: "k", needs: state.isOwner, follows: "itself", load: () => import("./pages/care.js") },
];

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const main = h("main", { id: "main", tabindex: "-1" });
const rail = h("nav", { class: "rail", "aria-label": "Pages" });
const banner = h("div", { class: "banner", role: "status", hidden: true });
const projectSwitch = h("select", { "aria-label": "Project" });
const searchField = h("input", { type: "search", placeholder: "Search everything", "aria-label": "Search everything", enterkeyhint: "search", autocomplete: "off" });

/** @type {Shown} */
let shown = {};
let shownPage = "";
let turn = 0;
/** @type {{stop: () => void} | null} */
let watching = null;
let watched = "";

function listPages() {
  return PAGES.filter((each) => !each.needs || each.needs());
}

function drawRail() {
  const current = readRoute().page;
  fill(rail,
    h("div", { class: "brand" }, h("img", { src: "/console/favicon.svg", alt: "" }), h("span", null, "Everkept")),
    listPages().map((each) => h("a", { href: place(each.name), "aria-current": each.name === current ? "page" : null, title: each.title }, icon(each.name), h("span", null, each.title))));
  // Without `scrollIntoView`, which moves the page too.
  const link = /** @type {HTMLElement | null} */ (rail.querySelector("[aria-current]"));
  if (link) rail.scrollTo(link.offsetLeft - (rail.clientWidth - link.offsetWidth) / 2, link.offsetTop - rail.clientHeight / 2);
}

function drawProjects() {
  const chosen = state.getProject() ?? "";
  fill(projectSwitch, h("option", { value: "", selected: chosen === "" }, "All projects"),
    state.projects.map((each) => h("option", { value: each.name, selected: each.name === chosen, disabled: each.off }, each.off ? `${each.name} (off)` : each.name)));
}

function drawFrame() {
  const search = h("form", { role: "search", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); go(place("search", "", { q: searchField.value })); } },
    icon("search"), searchField, h("kbd", { "aria-hidden": "true" }, "/"));
  projectSwitch.onchange = () => {
    state.chooseProject(projectSwitch.value || undefined);
    void open(true);
  };
  const themes = /** @type {const} */ (["", "light", "dark"]);
  const nextTheme = () => {
    const next = themes[(themes.indexOf(/** @type {any} */ (state.readChoice("theme"))) + 1) % 3];
    state.applyChoice("theme", next);
    announce(`Theme: ${next || "as the system"}`);
  };
  fill(app, h("div", { class: "frame" }, rail,
    h("header", { class: "bar" }, search, h("div", { class: "spring" }), projectSwitch,
      button("theme", "Change the theme", nextTheme), button("keys", "Keys", openKeyList), button("lock", "Lock", () => void lock())),
    main));
  setGeneralKeys([
    { keys: "/", says: "Search everything", run: () => searchField.focus() },
    ...listPages().map((each) => ({ keys: `g ${each.key}`, says: `Go to ${each.title}`, run: () => go(place(each.name)) })),
    { keys: "u", says: "Undo my last change", run: undoLast },
    { keys: "d", says: "Go to the open item", run: focusDetails },
    { keys: "?", says: "List the keys", run: openKeyList },
    { keys: "", says: "Change the theme", run: nextTheme },
    { keys: "", says: "Switch between compact and comfortable rows", run: () => state.applyChoice("rows", state.readChoice("rows") ? "" : "compact") },
    { keys: "", says: "Lock the console", run: () => void lock() },
    { keys: "Ctrl+K", says: "", run: openPalette },
  ]);
}

/** @param {string} name @param {string} label @param {() => void} run */
function button(name, label, run) {
  return h("button", { type: "button", class: "button plain icon-only", "aria-label": label, title: label, onclick: run }, icon(name));
}

/** A long list lies between a row and what it opened. */
function focusDetails() {
  const heading = /** @type {HTMLElement | null} */ (main.querySelector(".details:not([hidden]) h2"));
  if (heading) heading.tabIndex = -1;
  heading?.focus();
}

/** Show the page of the address. @param {boolean} [fresh] also if the page is shown already */
async function open(fresh = false) {
  const route = readRoute();
  const page = listPages().find((each) => each.name === route.page) ?? listPages()[0];
  if (!fresh && page.name === shownPage && shown.update?.(route)) return drawRail();
  const mine = ++turn;
  const isNew = page.name !== shownPage;
  shown.close?.();
  shown = {};
  shownPage = page.name;
  if (page.name !== "search") searchField.value = "";
  document.title = `${page.title} · Everkept`;
  drawRail();
  follow(page);
  try {
    const module = await track(page.load());
    if (mine !== turn) return;
    const place = h("div", null);
    fill(main, banner, place);
    const made = await track(Promise.resolve(module.show(place, route)));
    if (mine !== turn) return made.close?.();
    shown = made;
    setPageKeys(made.keys ?? []);
  } catch (error) {
    if (mine === turn) fill(main, banner, h("h1", { tabindex: "-1" }, page.title), failure(error, () => open(true)));
  }
  if (isNew) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

/** Follow the changes of the shown project, of all projects, or of what else the page shows. @param {typeof PAGES[number]} page */
function follow(page) {
  const project = page.follows === "all" ? undefined : state.getProject();
  const ownState = page.follows === "itself" ? page.name : undefined;
  const wanted = JSON.stringify([project, ownState]);
  if (wanted === watched) return;
  watched = wanted;
  watching?.stop();
  /** @type {string | null} */
  let known = null;
  watching = watch(project, ownState, (changes, problem) => {
    banner.hidden = !problem;
    if (problem) return void fill(banner, icon("health"), problem);
    const now = JSON.stringify(changes);
    const isNews = known !== null && known !== now;
    known = now;
    if (isNews) shown.changed?.(!hasJustWritten());
  });
}

function showDoor() {
  watching?.stop();
  shown.close?.();
  [shown, shownPage, watched] = [{}, "", ""];
  const field = h("input", { type: "password", autocomplete: "off", spellcheck: "false" });
  const problem = h("p", { class: "danger-text", role: "alert" });
  const enter = async (/** @type {Event} */ event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      await useToken(field.value);
      await start();
    } catch (error) {
      problem.textContent = error instanceof Error ? error.message : String(error);
    }
  };
  fill(app, h("main", { id: "main", class: "panel door" },
    h("h1", null, "The console is locked"),
    h("p", null, "On the machine that stores the memory, run:"),
    h("pre", null, "everkept console"),
    h("p", null, "Or sign in with the token of your account."),
    h("form", { class: "fields", onsubmit: enter }, h("label", { class: "field" }, "Token", field), problem, h("button", { type: "submit", class: "button main" }, "Sign in"))));
  field.focus();
}

async function start() {
  const first = PAGES.find((each) => each.name === readRoute().page) ?? PAGES[0];
  void first.load(); // beside the questions to the server
  await state.readServer();
  drawFrame();
  drawProjects();
  await open();
}

addEventListener("hashchange", () => shownPage && void open());
addEventListener("unhandledrejection", (event) => tellError(event.reason));
document.addEventListener("everkept-projects", () => drawProjects());
for (const name of /** @type {const} */ (["theme", "rows"])) state.applyChoice(name, state.readChoice(name));
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  document.getElementById("main")?.focus();
});
listenForKeys();

try {
  if (await begin(showDoor)) await start();
  else showDoor();
} catch (error) {
  showDoor();
  tellError(error);
}
