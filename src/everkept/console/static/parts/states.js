// @ts-check
/** What a page shows while it waits, when it has nothing, and when something fails. */

import { fill, h, icon, show } from "../dom.js";
import { ApiError } from "../api.js";
import { toast } from "./toast.js";

const PATIENCE = 150; // milliseconds before a skeleton appears

/** A command for the terminal, with a button that copies it. @param {string} text */
export function command(text) {
  return h("span", { class: "command" }, h("code", null, ...show(text)), copyButton(text, "Copy the command"));
}

/** @param {string} text @param {string} label */
export function copyButton(text, label) {
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  };
  return h("button", { type: "button", class: "button plain small icon-only above", "aria-label": label, title: label, onclick: copy }, icon("copy"));
}

/** @param {string} says what would be here @param {string | null} [fills] the command that fills it @param {any} [button] */
export function empty(says, fills, button) {
  return h("div", { class: "empty" }, h("p", null, says), fills ? command(fills) : null, button ?? null);
}

/** @param {unknown} error @param {() => any} [again] */
export function failure(error, again) {
  const known = error instanceof ApiError;
  return h("div", { class: "failed", role: "alert" },
    h("p", null, ...(known ? show(error.message) : [`The page failed: ${error}`])),
    known && error.hint ? h("p", null, ...show(error.hint)) : null,
    again ? h("p", null, h("button", { type: "button", class: "button small", onclick: again }, "Try again")) : null);
}

export function skeleton(lines = 8) {
  return h("div", { class: "skeletons", "aria-hidden": "true" }, Array.from({ length: lines }, () => h("div", { class: "skeleton" })));
}

/** Fill a place again. The focus moves to what stands where it was. @param {Element} place @param {any} content */
function refill(place, content) {
  const list = () => /** @type {HTMLElement[]} */ ([...place.querySelectorAll("a[href], button:enabled, select, input, textarea, [tabindex='0']")]);
  const at = list().indexOf(/** @type {HTMLElement} */ (document.activeElement));
  fill(place, content);
  if (at >= 0) list()[Math.min(at, list().length - 1)]?.focus({ preventScroll: true });
}

/**
 * Fill a place with what a promise brings: a skeleton if it takes long, an error with its hint if it fails.
 * @template T
 * @param {Element} place
 * @param {() => Promise<T>} load
 * @param {(found: T) => any} draw
 */
export async function fillWith(place, load, draw) {
  const turn = String(Math.random());
  place.setAttribute("data-turn", turn);
  const isCurrent = () => place.getAttribute("data-turn") === turn;
  const timer = setTimeout(() => isCurrent() && !place.firstChild && fill(place, skeleton(4)), PATIENCE);
  try {
    const found = await load();
    if (isCurrent()) refill(place, draw(found));
  } catch (error) {
    if (isCurrent()) fill(place, failure(error, () => fillWith(place, load, draw)));
  } finally {
    clearTimeout(timer);
  }
}
