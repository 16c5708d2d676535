// @ts-check
/** The head of a page, and the button that tells of changes by others. */

import { fill, h } from "../dom.js";
import { count } from "./time.js";

/** @param {string} title @param {...any} rest */
export function head(title, ...rest) {
  return h("div", { class: "head" }, h("h1", { tabindex: "-1" }, title), rest);
}

/**
 * A button that appears when others changed something, so that nothing moves under the hand.
 * @param {() => any} refresh
 * @param {HTMLElement} [place] what is refreshed by itself while neither the pointer nor the focus is on it; without it, lists always wait
 */
export function newsButton(refresh, place) {
  let waiting = 0;
  const run = () => {
    waiting = 0;
    node.hidden = true;
    void refresh();
  };
  const node = h("button", { type: "button", class: "chip", hidden: true, onclick: run });
  return {
    node,
    /** @param {boolean} byOthers */
    tell(byOthers) {
      if (place ? !place.matches(":hover, :focus-within") : !byOthers) return run();
      if (!byOthers) return;
      waiting += 1;
      fill(node, `${count(waiting, "new change")}. Show`);
      node.hidden = false;
    },
  };
}
