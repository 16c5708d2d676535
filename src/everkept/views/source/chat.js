// @ts-check
/** A view in a chat: one line that opens, the state before there is a result, and the looks of the host. */

import { fill, h, show } from "../../console/static/dom.js";
import { tool } from "./buttons.js";
import { explain, Host } from "./host.js";

// Variables of the host, and ours that take their values.
const VARIABLES = {
  "--color-background-primary": ["--canvas", "--surface"], "--color-background-secondary": ["--raised"], "--color-text-primary": ["--text"],
  "--color-text-secondary": ["--soft"], "--color-text-tertiary": ["--mute"], "--color-border-primary": ["--edge"], "--color-border-secondary": ["--line"],
  "--font-sans": ["--sans"], "--font-mono": ["--mono"],
};

/** @typedef {{said: string, node: Node | null, fit?: () => void, close?: () => void}} Drawn `said` is the line that opens `node`; without a node there is nothing to open. `fit` is called when the node has another size */

/**
 * Show the result of a tool when the host has sent it.
 * @param {{waits: string, label: string, draw: (result: any, host: Host, args: any) => Drawn}} view
 */
export function startView({ waits, label, draw }) {
  const live = h("p", { class: "chat-state", role: "status" }, waits);
  const place = h("div", null, live);
  document.body.className = "chat";
  document.body.append(h("main", null, h("h1", { class: "unseen" }, label), place));
  let args = {};
  /** @type {Drawn | null} */
  let drawn = null;
  let isOpen = false;

  const host = new Host({
    input: (given) => (args = given),
    cancelled: () => drawn ?? tell("The call was canceled."),
    result: (result) => {
      drawn?.close?.();
      drawn = null;
      if (result.isError || !result.structuredContent) return tell(explain(result), Boolean(result.isError));
      drawn = draw(result.structuredContent, host, args);
      drawPage();
    },
    context: applyContext,
    close: () => drawn?.close?.(),
  });

  /** @param {string} said @param {boolean} [isFailure] */
  function tell(said, isFailure = false) {
    live.className = isFailure ? "failed" : "chat-state";
    fill(live, ...show(said));
    fill(place, live);
  }

  function drawPage() {
    if (!drawn) return;
    const { said, node } = drawn;
    if (!node) return tell(said);
    const isFull = host.context.displayMode === "fullscreen";
    const body = h("div", { class: "chat-body", hidden: !(isOpen || isFull) }, node);
    const opener = h("button", { type: "button", class: "chat-line", "aria-expanded": String(isOpen), onclick: () => {
      isOpen = !isOpen;
      opener.setAttribute("aria-expanded", String(isOpen));
      body.hidden = !isOpen;
      if (isOpen) drawn?.fit?.();
    } }, h("span", { class: "chat-arrow", "aria-hidden": "true" }), h("span", null, said));
    const canGrow = (host.context.availableDisplayModes ?? []).includes("fullscreen");
    const grow = tool("M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3", "Full screen", () => host.request("ui/request-display-mode", { mode: "fullscreen" }).then(({ mode }) => host.mergeContext({ displayMode: mode })).catch(() => {}));
    fill(place, h("div", { class: "chat-head" }, isFull ? h("p", { class: "chat-line" }, said) : opener, canGrow && !isFull ? grow : null), body);
    if (!body.hidden) drawn.fit?.();
  }

  /** @param {any} context */
  function applyContext(context) {
    const { body } = document;
    const wasFull = body.dataset.mode === "fullscreen";
    body.dataset.theme = context.theme === "dark" ? "dark" : "light";
    body.dataset.mode = context.displayMode ?? "inline";
    for (const [name, ours] of Object.entries(VARIABLES)) {
      const value = context.styles?.variables?.[name];
      for (const each of ours) value ? body.style.setProperty(each, value) : body.style.removeProperty(each);
    }
    const { top = 0, right = 0, bottom = 0, left = 0 } = context.safeAreaInsets ?? {};
    body.style.setProperty("padding", [top, right, bottom, left].map((each) => `${Number(each) || 0}px`).join(" "));
    document.documentElement.dataset.theme = body.dataset.theme; // what a drawing watches
    if (wasFull !== (body.dataset.mode === "fullscreen")) drawPage();
  }

  host.connect().catch((error) => tell(String(error.message ?? error), true));
  return host;
}
