// @ts-check
/** Projects: create, archive, switch off, delete. */

import { call, change } from "../api.js";
import { h, show as text } from "../dom.js";
import { confirmByName, openDialog } from "../parts/dialog.js";
import { head, newsButton } from "../parts/head.js";
import { empty, fillWith } from "../parts/states.js";
import { age, count, formatSize } from "../parts/time.js";
import { tellError, tellReversible, undoChanges } from "../parts/toast.js";
import { place } from "../router.js";
import { chooseProject, isOwner, projects, readProjects, server } from "../state.js";

const COUNTED = new Set(["Memories", "Entities", "Size"]);

/** @param {HTMLElement} main */
export async function show(main) {
  const list = h("div", { class: "scroll panel projects", tabindex: "0", role: "group", "aria-label": "Projects" });
  const create = h("button", { type: "button", class: "button main", onclick: () => askForProject(refresh) }, "Create a project");
  const news = newsButton(refresh, list);
  main.append(head("Projects", news.node, h("div", { class: "spring" }), server.read_only ? null : create), list);
  async function refresh() {
    await readProjects();
    document.dispatchEvent(new Event("everkept-projects"));
    await draw();
  }
  const draw = () => fillWith(list, async () => {
    const overview = isOwner() ? await call("read_overview").catch(() => null) : null;
    return new Map((overview?.projects ?? []).map((/** @type {any} */ each) => [each.name, each]));
  }, (sizes) => {
    list.classList.toggle("panel", projects.length > 0);
    if (!projects.length) return empty("Each folder you work in gets a project automatically. You can also create one.", "everkept create-project shop");
    return h("table", { class: "grid" },
      h("thead", null, h("tr", null, ["Project", "State", "Memories", "Entities", "Size", "Created", ""].filter((each) => isOwner() || !COUNTED.has(each)).map((each) => h("th", { scope: "col", class: COUNTED.has(each) ? "number" : null }, each || h("span", { class: "unseen" }, "Actions"))))),
      h("tbody", null, projects.map((project) => drawRow(project, /** @type {any} */ (sizes.get(project.name)), refresh))));
  });
  await refresh();
  return { changed: news.tell };
}

/** @param {any} project @param {any} size @param {() => any} after */
function drawRow(project, size, after) {
  const { name } = project;
  /** @param {string} label @param {() => any} run @param {string} [kind] */
  const button = (label, run, kind = "") => h("button", { type: "button", class: `button small ${kind}`, "aria-label": `${label} ${name}`, onclick: run }, label);
  /** @param {string} tool @param {Record<string, any>} args @param {string} said @param {() => any} reverse */
  const act = async (tool, args, said, reverse) => {
    try {
      await change(tool, args);
      tellReversible(said, reverse, after);
    } catch (error) {
      tellError(error);
    }
    await after();
  };
  const turn = (/** @type {boolean} */ off) => change("turn_project_off", { project: name, off });
  const state = project.off ? "off" : project.status;
  return h("tr", null,
    h("td", null, h("a", { href: place("memories"), onclick: () => chooseProject(name) }, ...text(name)), project.description ? h("p", { class: "mute small" }, ...text(project.description)) : null),
    h("td", null, h("span", { class: `badge ${state === "active" ? "good" : "warn"}` }, state)),
    isOwner() ? [
      h("td", { class: "number" }, size?.memories?.toLocaleString() ?? ""),
      h("td", { class: "number" }, size?.entities?.toLocaleString() ?? ""),
      h("td", { class: "number" }, size ? formatSize(size.size_bytes) : ""),
    ] : null,
    h("td", null, age(project.created_at)),
    h("td", null, server.read_only ? null : h("div", { class: "line tight end" },
      project.off
        ? button("Switch on", () => act("turn_project_off", { project: name, off: false }, `${name} is on.`, () => turn(true)))
        : button("Switch off", () => act("turn_project_off", { project: name, off: true }, `${name} is off. No assistant reads or writes it.`, () => turn(false))),
      project.status === "archived"
        ? button("Restore", () => act("restore_project", { name }, `Restored ${name}.`, () => change("archive_project", { name })))
        : button("Archive", () => act("archive_project", { name }, `Archived ${name}.`, () => change("restore_project", { name }))),
      button("Delete", () => askToDelete(name, size, after), "danger"))));
}

/** @param {string} name @param {any} size @param {() => any} after */
function askToDelete(name, size, after) {
  confirmByName(`Delete ${name}?`,
    [Number.isInteger(size?.memories) ? h("p", null, `It holds ${count(size.memories, "memory", "memories")} and ${count(size.entities, "entity", "entities")}.`) : null, h("p", null, "It moves to the trash, from where you can restore it for a while.")],
    name, "Delete the project", async () => {
      await change("delete_project", { name });
      tellReversible(`Deleted ${name}.`, () => undoNewest(name, "delete_project"), after);
      await after();
    });
}

/** Undo the newest change that a tool made to a whole project. @param {string} project @param {string} tool */
async function undoNewest(project, tool) {
  const { changes } = await call("list_changes", { project, tool, limit: 1 });
  await undoChanges(changes.map((/** @type {any} */ each) => each.change));
}

/** @param {() => any} after */
function askForProject(after) {
  const name = h("input", { type: "text", required: true });
  const description = h("input", { type: "text" });
  openDialog({
    title: "Create a project",
    body: [h("label", { class: "field" }, "Name", name), h("label", { class: "field" }, "Description", description)],
    buttons: [{ label: "Cancel" }, { label: "Create", kind: "main", run: async () => {
      await change("create_project", { name: name.value.trim(), description: description.value.trim() || undefined });
      const made = name.value.trim();
      tellReversible(`Created ${made}.`, () => undoNewest(made, "create_project"), after);
      await after();
    } }],
  });
  name.focus();
}
