// @ts-check
/** Care: backups, an export, and secrets that were stored before masking knew them. */

import { call, change } from "../api.js";
import { fill, h, show as text } from "../dom.js";
import { confirm } from "../parts/dialog.js";
import { head, newsButton } from "../parts/head.js";
import { command, fillWith } from "../parts/states.js";
import { age, count, formatSize } from "../parts/time.js";
import { tellError, toast } from "../parts/toast.js";
import { server } from "../state.js";

/** @param {HTMLElement} main */
export async function show(main) {
  const [backups, secrets] = [h("section", { class: "panel" }), h("section", { class: "panel" })];
  const news = newsButton(() => drawBackups(backups), backups);
  main.append(head("Care", news.node), h("div", { class: "panels" }, backups, drawExport(), secrets));
  await Promise.all([drawBackups(backups), drawSecrets(secrets)]);
  return { changed: news.tell };
}

/** A button that says what it does while it works. @param {string} label @param {string} works @param {() => Promise<void>} run @param {string} kind */
function workButton(label, works, run, kind = "") {
  const button = h("button", { type: "button", class: `button ${kind}`, disabled: server.read_only, onclick: async () => {
    button.disabled = true;
    fill(button, works);
    await run().catch(tellError);
    button.disabled = false;
    fill(button, label);
  } }, label);
  return button;
}

function drawExport() {
  const make = async () => {
    const made = await change("export_all_data", {});
    const skipped = [...made.archived, ...made.off];
    toast(`Exported ${count(made.records, "record")} to ${made.folder}.${skipped.length ? ` Skipped because archived or off: ${skipped.join(", ")}.` : ""}`);
  };
  return h("section", { class: "panel" }, h("h2", null, "Export"),
    h("p", null, "Writes Markdown and JSON Lines to a folder next to the data. Skips forgotten items."),
    h("p", null, workButton("Export everything", "Exporting…", make)),
    h("p", { class: "mute small" }, "For another folder or format, run:"), command("everkept export DIR"));
}

/** @param {HTMLElement} place @returns {Promise<void>} */
function drawBackups(place) {
  const make = async () => {
    const made = await change("make_data_backup", {});
    toast(`Backed up to ${made.file}.`);
    await drawBackups(place);
  };
  return fillWith(place, () => call("list_data_backups"), (found) => [
    h("h2", null, "Backups"),
    found.backups.length
      ? h("ul", { class: "short" }, found.backups.slice(0, 10).map((/** @type {any} */ each) => h("li", null, h("code", { class: "one-line" }, ...text(each.file)), h("span", { class: "mute number" }, formatSize(each.size)), age(each.at))))
      : h("p", { class: "mute" }, "There is no backup in ", h("code", null, ...text(found.folder)), "."),
    h("p", null, workButton("Back up now", "Backing up…", make, "main")),
    h("p", { class: "mute small" }, "To restore a backup, run:"), command("everkept restore FILE"),
  ]);
}

/** @param {HTMLElement} place @returns {Promise<void>} */
function drawSecrets(place) {
  const mask = () => confirm("Mask these secrets?", h("p", null, "Masking replaces them everywhere, including the log. This cannot be undone."), "Mask", async () => {
    await change("mask_stored_secrets", {});
    toast("Masked.");
    await drawSecrets(place);
  });
  return fillWith(place, () => call("find_stored_secrets"), (found) => [
    h("h2", null, "Secrets"),
    found.findings.length
      ? [h("p", null, `${count(found.findings.length, "place")} may contain a password, key or token.`),
        h("ul", { class: "short" }, found.findings.slice(0, 50).map((/** @type {any} */ each) => h("li", null, h("span", { class: "one-line" }, ...text(describe(each)))))),
        h("p", null, h("button", { type: "button", class: "button danger", disabled: server.read_only, onclick: mask }, "Mask them"))]
      : h("p", null, "No password, key or token was found in what is stored."),
  ]);
}

/** @param {any} finding */
function describe(finding) {
  return `${finding.secrets.join(", ")} in ${finding.project}: ${finding.excerpt || finding.kind}`;
}
