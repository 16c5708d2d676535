// @ts-check
/** Buttons of views. */

import { fill, h, s, show } from "../../console/static/dom.js";

/** A button of an icon. @param {string} path @param {string} label @param {() => any} run */
export function tool(path, label, run) {
  const drawn = s("path", { d: path });
  return h("button", { type: "button", class: "button plain small icon-only", "aria-label": label, title: label, onclick: run }, s("svg", { class: "icon line-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, drawn));
}

/** Run what a button does. While it runs the button rests, and a failure is shown beside it. @param {string} label @param {() => Promise<any>} run @param {string} [kind] */
export function actionButton(label, run, kind = "") {
  const failure = h("p", { class: "danger-text", role: "alert", hidden: true });
  const button = h("button", { type: "button", class: `button small ${kind}`, onclick: async () => {
    button.disabled = true;
    failure.hidden = true;
    try {
      await run();
    } catch (error) {
      failure.hidden = false;
      fill(failure, ...show(/** @type {Error} */ (error).message));
    }
    button.disabled = false;
  } }, label);
  return [button, failure];
}
