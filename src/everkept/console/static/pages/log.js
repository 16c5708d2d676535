// @ts-check
/** Log: every change, what it altered, and its undo. */

import { call, change } from "../api.js";
import { fill, h, show as text } from "../dom.js";
import { drawEdit } from "../parts/diff.js";
import { head, newsButton } from "../parts/head.js";
import { iconButton } from "../parts/memory.js";
import { byCursor, Rows } from "../parts/rows.js";
import { empty, fillWith } from "../parts/states.js";
import { age, when } from "../parts/time.js";
import { toast, tellError } from "../parts/toast.js";
import { alterQuery, go, place } from "../router.js";
import { getProject, nameProject, server } from "../state.js";

/** @param {HTMLElement} main @param {import("../router.js").Route} first */
export async function show(main, first) {
  let route = first;
  const details = h("aside", { class: "details", "aria-label": "The open change", hidden: true });
  /** @param {string} name @param {string} label */
  const filter = (name, label) => {
    const field = h("input", { type: "search", placeholder: label, "aria-label": label, value: route.query.get(name) ?? "" });
    field.addEventListener("change", () => alterQuery((query) => (field.value ? query.set(name, field.value) : query.delete(name))));
    return field;
  };
  const rows = new Rows({
    label: "Changes",
    key: (entry) => entry.change + entry.undone,
    load: byCursor(async (cursor, limit) => {
      const asked = Object.fromEntries(["tool", "client", "record"].map((name) => [name, route.query.get(name) ?? ""]));
      const found = await call("list_changes", { project: getProject(), cursor, limit, ...asked });
      return { items: found.changes, cursor: found.cursor };
    }),
    draw: (entry) => h("div", { class: `row ${entry.change === route.id ? "chosen" : ""}` },
      h("div", { class: "two" },
        h("a", { class: `open line-of-text ${entry.undone ? "gone" : ""}`, href: place("log", entry.change, route.query) }, ...text(entry.summary)),
        h("div", { class: "meta one-line" }, getProject() ? null : h("span", { class: "badge" }, ...text(nameProject(entry.project))), entry.undone ? h("span", { class: "badge warn" }, "undone") : null,
          h("code", null, ...text(entry.tool)), entry.client ? h("span", null, "by ", ...text(entry.client)) : null)),
      h("div", { class: "meta" }, age(entry.at))),
    whenEmpty: () => empty("Every change appears here, and you can undo it. Nothing has changed yet.", 'everkept remember "We use PostgreSQL"'),
  });
  const news = newsButton(() => refresh());
  const split = h("div", { class: "split" }, rows.node, details);
  main.append(head("Log", news.node, h("div", { class: "spring" }), filter("tool", "Tool"), filter("client", "Client")), split);
  const close = () => go(place("log", "", route.query));
  const refresh = () => Promise.all([rows.reload(), drawDetails()]);

  async function drawDetails() {
    details.hidden = !route.id;
    split.classList.toggle("open", Boolean(route.id));
    if (!route.id) return void fill(details);
    const name = route.id;
    await fillWith(details, () => call("read_change", { change: name }), (found) => {
      const entry = [...rows.items.values()].find((each) => each.change === name);
      return [
        h("div", { class: "head" }, h("h2", null, `Change ${name}`), h("div", { class: "spring" }), iconButton("close", "Close (Esc)", close)),
        entry ? h("p", { class: "meta" }, ...text(entry.summary), when(entry.at)) : null,
        server.read_only || entry?.undone ? null : h("div", { class: "line" }, h("button", { type: "button", class: "button small", onclick: () => undo(name) }, "Undo this change")),
        found.edits.map((/** @type {any} */ edit) => h("section", null, drawEdit(edit), edit.kind === "memory" ? h("a", { href: place("memories", edit.id) }, "Open the memory") : null)),
      ];
    });
  }
  /** @param {string} name */
  async function undo(name) {
    try {
      const undone = await change("undo_change", { change: name });
      const again = () => change("undo_change", { change: undone.change ?? undone.undone }).then(refresh).catch(tellError);
      toast(`Undone: ${undone.summary}.`, undone.change ? { label: "Redo", run: again } : undefined);
    } catch (error) {
      tellError(error);
    }
    await refresh();
  }

  await refresh();
  return {
    close: () => rows.close(),
    changed: news.tell,
    /** @param {import("../router.js").Route} next */
    update(next) {
      const isSameList = String(next.query) === String(route.query);
      route = next;
      if (isSameList) rows.redraw();
      else void rows.reload();
      void drawDetails();
      return true;
    },
    keys: [
      { keys: "j", says: "Next change", run: () => rows.move(1) },
      { keys: "k", says: "Previous change", run: () => rows.move(-1) },
      { keys: "Esc", says: "Close the change", run: close },
    ],
  };
}
