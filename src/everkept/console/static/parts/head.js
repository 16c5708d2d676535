// @ts-check
/** The head of a page, and the button that tells of changes by others. */

import { fill, h, icon } from "../dom.js";
import { count } from "./time.js";

/** @param {string} title @param {...any} rest */
export function head(title, ...rest) {
  return h("div", { class: "head" }, h("h1", { tabindex: "-1" }, title), rest);
}

/** @param {string} name icon @param {string} label @param {() => any} run @param {string} [kind] */
export function action(name, label, run, kind = "") {
  return h("button", { type: "button", class: `button ${kind}`, onclick: run }, icon(name), label);
}

/** A button that appears when others changed something, so that nothing moves under the hand. @param {() => any} refresh */
export function newsButton(refresh) {
  let waiting = 0;
  const node = h("button", { type: "button", class: "chip", hidden: true, onclick: () => {
    waiting = 0;
    node.hidden = true;
    void refresh();
  } });
  return {
    node,
    /** @param {boolean} byOthers */
    tell(byOthers) {
      if (!byOthers) return void refresh();
      waiting += 1;
      fill(node, icon("undo"), `${count(waiting, "new change")}. Show`);
      node.hidden = false;
    },
  };
}
