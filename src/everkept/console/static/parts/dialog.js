// @ts-check
/** Dialogs: questions before what cannot be taken back, and small forms. */

import { h } from "../dom.js";
import { ApiError } from "../api.js";

/** @typedef {{label: string, kind?: string, run?: () => any, disabled?: boolean}} Button */

/**
 * Open a dialog. A button without `run` closes it; one with `run` closes it unless `run` throws.
 * @param {{title: string, body: any, buttons: Button[], kind?: string, label?: string}} options
 */
export function openDialog({ title, body, buttons, kind = "", label }) {
  const before = document.activeElement;
  const problem = h("p", { class: "danger-text", role: "alert" });
  const heading = title ? h("h2", { id: "dialog-title" }, title) : null;
  const dialog = h("dialog", { class: kind, ...(heading ? { "aria-labelledby": "dialog-title" } : { "aria-label": label ?? "" }) });
  const made = buttons.map((each) => {
    const node = h("button", { type: each.run && each.kind === "main" ? "submit" : "button", class: `button ${each.kind ?? ""}`, disabled: each.disabled ?? false }, each.label);
    const act = async () => {
      if (!each.run) return dialog.close();
      node.disabled = true;
      try {
        await each.run();
        dialog.close();
      } catch (error) {
        problem.textContent = error instanceof ApiError ? `${error.message} ${error.hint}` : String(error);
      } finally {
        node.disabled = false;
      }
    };
    node.addEventListener("click", (/** @type {Event} */ event) => {
      event.preventDefault();
      void act();
    });
    return node;
  });
  const form = h("form", { class: "fields" }, heading, body, problem, made.length ? h("div", { class: "buttons" }, made) : null);
  dialog.append(form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement) (before.isConnected && before !== document.body ? before : findSuccessor(before))?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return { close: () => dialog.close(), node: dialog, buttons: made };
}

/** The button that a new drawing of the page has in place of one. @param {HTMLElement} gone */
function findSuccessor(gone) {
  const buttons = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("main button")]);
  const nameOf = (/** @type {HTMLElement} */ each) => each.getAttribute("aria-label") ?? each.textContent;
  return buttons.find((each) => nameOf(each) && nameOf(each) === nameOf(gone)) ?? document.querySelector("h1");
}

/** Ask before something that cannot be undone. @param {string} title @param {any} body @param {string} label @param {() => any} run */
export function confirm(title, body, label, run) {
  return openDialog({ title, body: h("div", null, body), buttons: [{ label: "Cancel" }, { label, kind: "danger", run }] });
}

/** Ask for a text. @param {string} title @param {{label: string, value?: string, lines?: boolean, hint?: string}} field @param {string} label @param {(text: string) => any} run */
export function ask(title, field, label, run) {
  const input = field.lines ? h("textarea", { rows: 6, value: field.value ?? "" }) : h("input", { type: "text", value: field.value ?? "" });
  const opened = openDialog({
    title,
    body: [h("label", { class: "field" }, field.label, input), field.hint ? h("p", { class: "mute small" }, field.hint) : null],
    buttons: [{ label: "Cancel" }, { label, kind: "main", run: () => run(input.value.trim()) }],
  });
  input.focus();
  return opened;
}

/** A danger that wants the name typed in full. @param {string} title @param {any} body @param {string} name @param {string} label @param {() => any} run */
export function confirmByName(title, body, name, label, run) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const opened = openDialog({
    title,
    body: [h("div", null, body), h("label", { class: "field" }, `Type ${name} to confirm`, input)],
    buttons: [{ label: "Cancel" }, { label, kind: "danger", run, disabled: true }],
  });
  input.addEventListener("input", () => (opened.buttons[1].disabled = input.value !== name));
  input.focus();
  return opened;
}
