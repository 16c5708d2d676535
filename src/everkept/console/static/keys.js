// @ts-check
/** Keys: one table of what each does on this page, for the hands, the list of keys and the command field. */

import { h, fill, show } from "./dom.js";
import { openDialog } from "./parts/dialog.js";

/** @typedef {{keys: string, says: string, run: () => void, everywhere?: boolean}} Command */

/** @type {Command[]} */
let general = [];
/** @type {Command[]} */
let ofPage = [];
let pending = "";
let isOn = localStorage.getItem("everkept-keys") !== "off";

/** @param {Command[]} commands */
export function setGeneralKeys(commands) {
  general = commands;
}

/** @param {Command[]} commands */
export function setPageKeys(commands) {
  ofPage = commands;
}

/** Single keys can be switched off, because some people's speech or tremor presses them. @param {boolean} on */
export function switchKeys(on) {
  isOn = on;
  localStorage.setItem("everkept-keys", on ? "on" : "off");
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && target.type === "checkbox");
}

export function listenForKeys() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      if (isTyping(event.target)) /** @type {HTMLElement} */ (event.target).blur();
      else find("Esc")?.run();
      return;
    }
    if (!isOn || isTyping(event.target)) return;
    if (event.target instanceof HTMLElement && (event.key === "Enter" || event.key === " ")) return;
    const typed = pending ? `${pending} ${event.key}` : event.key;
    pending = "";
    const found = find(typed);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (list().some((each) => each.keys.startsWith(`${event.key} `))) {
      pending = event.key;
      setTimeout(() => (pending = ""), 1200);
    }
  });
}

function list() {
  return [...ofPage, ...general];
}

/** @param {string} keys */
function find(keys) {
  return list().find((each) => each.keys === keys);
}

/** A list of all keys, and the switch. */
export function openKeyList() {
  const rows = (/** @type {Command[]} */ commands) =>
    h("ul", { class: "fields" }, commands.filter((each) => each.keys).map((each) => h("li", { class: "line" }, h("kbd", null, each.keys), h("span", null, each.says))));
  const switched = h("input", { type: "checkbox", checked: isOn, onchange: (/** @type {any} */ event) => switchKeys(event.target.checked) });
  openDialog({
    title: "Keys",
    body: [
      h("label", { class: "line" }, switched, "Use single keys"),
      h("p", { class: "mute small" }, "Ctrl+K always works."),
      ofPage.length ? h("h3", null, "On this page") : null,
      rows(ofPage),
      h("h3", null, "Everywhere"),
      rows(general),
    ],
    buttons: [{ label: "Close" }],
  });
}

/** A field that finds every command by its words. */
export function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  const all = list().filter((each) => each.says);
  let chosen = 0;
  /** @type {Command[]} */
  let found = all;
  const options = h("ul", { id: "palette-options", role: "listbox", "aria-label": "Commands" });
  const field = h("input", {
    type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-options", "aria-label": "Command", placeholder: "What do you want to do?", autocomplete: "off",
  });
  const draw = () => {
    fill(options, found.map((each, index) =>
      h("li", { role: "option", id: `command-${index}`, "aria-selected": String(index === chosen), onclick: () => run(each) }, h("span", null, ...show(each.says)), each.keys ? h("kbd", null, each.keys) : null)));
    field.setAttribute("aria-activedescendant", found.length ? `command-${chosen}` : "");
    options.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const dialog = openDialog({ title: "", body: [field, options], buttons: [], kind: "palette", label: "Commands" });
  const run = (/** @type {Command} */ each) => {
    dialog.close();
    each.run();
  };
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    found = all.filter((each) => words.every((/** @type {string} */ word) => each.says.toLowerCase().includes(word)));
    chosen = 0;
    draw();
  });
  field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(found.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Enter" && found[chosen]) {
      event.preventDefault();
      run(found[chosen]);
    }
  });
  draw();
  field.focus();
}
