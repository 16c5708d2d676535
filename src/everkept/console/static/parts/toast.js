// @ts-check
/** Short news at the edge of the page, and the way back from a change. */

import { announce, h } from "../dom.js";
import { ApiError, call, change } from "../api.js";

const SECONDS = 10;

/** @param {string} text @param {{label: string, run: () => any}} [action] */
export function toast(text, action) {
  const place = document.getElementById("toasts");
  const node = h("div", { class: "toast" }, h("p", null, text));
  /** @type {ReturnType<typeof setTimeout>} */
  let timer;
  const close = () => {
    clearTimeout(timer);
    node.remove();
  };
  const wait = () => (timer = setTimeout(close, SECONDS * 1000));
  if (action) {
    node.append(h("button", { type: "button", class: "button small", onclick: async () => { close(); await action.run(); } }, action.label));
  }
  node.append(h("button", { type: "button", class: "button small", "aria-label": "Close", onclick: close }, "×"));
  node.addEventListener("pointerenter", () => clearTimeout(timer));
  node.addEventListener("pointerleave", wait);
  node.addEventListener("focusin", () => clearTimeout(timer));
  node.addEventListener("focusout", wait);
  while ((place?.children.length ?? 0) > 2) place?.firstChild?.remove();
  place?.append(node);
  announce(action ? `${text} ${action.label} is possible.` : text);
  wait();
}

/** @param {unknown} error */
export function tellError(error) {
  toast(error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(" ") : `The page failed: ${error}`);
}

/** @type {(() => any) | null} */
let lastUndo = null;

/** Undo the newest change made here. */
export function undoLast() {
  if (lastUndo) void lastUndo();
  else toast("Nothing was changed here yet. The log undoes older changes.");
}

/**
 * Say what has changed and offer to undo it.
 * @param {string} text
 * @param {() => any} reverse
 * @param {() => any} [after] called when it is undone
 */
export function tellReversible(text, reverse, after) {
  const undo = async () => {
    lastUndo = null;
    try {
      await reverse();
      toast("Undone.");
    } catch (error) {
      tellError(error);
    }
    await after?.();
  };
  lastUndo = undo;
  toast(text, { label: "Undo", run: undo });
}

/** Say what has changed and offer to undo it by the log. @param {string} text @param {string[]} changes such as shop:12 @param {() => any} [after] called when it is undone */
export function tellChange(text, changes, after) {
  if (changes.length) return tellReversible(text, () => undoChanges(changes), after);
  lastUndo = null;
  toast(text);
}

/** @param {string[]} changes */
export async function undoChanges(changes) {
  for (const each of changes) await change("undo_change", { change: each });
}

/** The change that this page made last in a project. @param {string} project @returns {Promise<string[]>} */
export async function findNewestChange(project) {
  const { changes } = await call("list_changes", { project, client: "console", limit: 1 });
  return changes.map((/** @type {any} */ each) => each.change);
}
