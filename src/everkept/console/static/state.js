// @ts-check
/** What every page needs: who is acting, which project is shown, and the choices of this browser. */

import { call } from "./api.js";

/** @type {{account: string | null, only_project: string | null, read_only: boolean, families: string[], data_dir: string | null, engine: string, reachable: boolean, folder_project: string | null}} */
export const server = { account: null, only_project: null, read_only: false, families: [], data_dir: null, engine: "", reachable: true, folder_project: null };

/** @type {{name: string, description: string, status: string, off: boolean, created_at: string}[]} */
export let projects = [];
/** @type {string | undefined} */
let chosen;
let reads = 0;

export async function readServer() {
  const [seen, listed] = await Promise.all([call("read_console_state"), call("list_projects_to_show")]);
  Object.assign(server, seen);
  keepProjects(listed.projects);
}

export async function readProjects() {
  const turn = ++reads;
  const listed = await call("list_projects_to_show");
  if (turn === reads) keepProjects(listed.projects); // an answer that comes late may be older than what is shown
}

/** @param {typeof projects} listed */
function keepProjects(listed) {
  projects = listed;
  const names = projects.map((each) => each.name);
  const kept = chosen ?? sessionStorage.getItem("everkept-project") ?? server.folder_project ?? undefined;
  chosen = kept && names.includes(kept) ? kept : undefined;
}

/** The project that is shown; undefined: all of them. */
export function getProject() {
  return chosen;
}

/** A project as people call it. @param {string} name */
export function nameProject(name) {
  return name === "@user" ? "you" : name;
}

/** The project that is shown, or the only sensible one where a page needs one. */
export function getOneProject() {
  return chosen ?? projects.find((each) => each.status === "active" && !each.off)?.name;
}

/** @param {string | undefined} name */
export function chooseProject(name) {
  chosen = name;
  if (name) sessionStorage.setItem("everkept-project", name);
  else sessionStorage.removeItem("everkept-project");
}

/** Whether the owner is acting, on a server that shows more than one project. */
export function isOwner() {
  return server.account === null && server.only_project === null;
}

/** @param {string} family */
export function has(family) {
  return server.families.includes(family);
}

/** @param {"theme" | "rows"} name */
export function readChoice(name) {
  return localStorage.getItem(`everkept-${name}`) ?? "";
}

/** @param {"theme" | "rows"} name @param {string} value */
export function applyChoice(name, value) {
  localStorage.setItem(`everkept-${name}`, value);
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
}
