// @ts-check
/** Team: accounts, their tokens, what each may see, and what they called. */

import { call, change } from "../api.js";
import { fill, h, show as text } from "../dom.js";
import { ask, confirm, confirmByName, openDialog } from "../parts/dialog.js";
import { head, newsButton } from "../parts/head.js";
import { copyButton, empty, fillWith } from "../parts/states.js";
import { age, when } from "../parts/time.js";
import { tellError, tellReversible, toast } from "../parts/toast.js";
import { projects, server } from "../state.js";

const LEVELS = /** @type {const} */ (["", "read", "write"]);

/** @param {HTMLElement} main */
export async function show(main) {
  const team = h("div", { class: "fields" });
  const calls = h("div", null);
  const who = h("select", { "aria-label": "Account of the log" });
  const where = h("select", { "aria-label": "Project of the log" }, h("option", { value: "" }, "All projects"), projects.map((each) => h("option", { value: each.name }, each.name)));
  const create = h("button", { type: "button", class: "button main", onclick: () => askForAccount("", draw) }, "Create a token");
  const log = h("section", { class: "panel" }, h("div", { class: "head" }, h("h2", null, "Access log"), h("div", { class: "spring" }), who, where), calls);
  const parts = h("div", { class: "fields" }, team, log);
  const news = newsButton(() => drawAll(), parts);
  main.append(head("Team", news.node, h("div", { class: "spring" }), create), parts);
  async function draw() {
    await fillWith(team, () => call("list_team"), (found) => {
      const chosen = who.value;
      fill(who, h("option", { value: "" }, "All accounts"), found.accounts.map((/** @type {any} */ each) => h("option", { value: each.name, selected: each.name === chosen }, each.name)));
      return drawTeam(found, draw);
    });
  }
  const drawLog = () => fillWith(calls, () => call("read_access_log", { limit: 100, account: who.value || undefined, project: where.value || undefined }), drawCalls);
  who.onchange = where.onchange = drawLog;
  const drawAll = () => Promise.all([draw(), drawLog()]);
  await drawAll();
  return { changed: news.tell };
}

/** @param {any} found @param {() => any} after */
function drawTeam(found, after) {
  if (!found.accounts.length && !found.tokens.length) return empty("Other people sign in with their own token. No one has one yet.", "everkept token --user ada");
  return [drawAccounts(found, after), found.accounts.length && projects.length ? drawGrants(found, after) : null];
}

/** @param {any} found @param {() => any} after */
function drawAccounts(found, after) {
  /** @param {any} token */
  const revoke = (token) => confirm("Revoke this token?", h("p", null, "It stops working immediately."), "Revoke", async () => {
    await change("revoke_account_token", { token_id: token.id });
    toast("Revoked.");
    await after();
  });
  /** @param {string} name */
  const remove = (name) => confirmByName(`Remove ${name}?`, h("p", null, "The account's tokens and private data are deleted. Its projects become yours. This cannot be undone."), name, "Remove the account", async () => {
    await change("remove_account", { account: name });
    toast(`Removed ${name}.`);
    await after();
  });
  const ofOwner = found.tokens.filter((/** @type {any} */ each) => !each.account);
  /** @param {any[]} tokens */
  const drawTokens = (tokens) => h("ul", { class: "short" }, tokens.map((token) => h("li", null, h("code", null, token.id.slice(0, 8)), h("span", { class: "one-line" }, ...text(token.label)), age(token.created_at),
    h("button", { type: "button", class: "button small danger", "aria-label": `Revoke the token ${token.label || token.id}`, onclick: () => revoke(token) }, "Revoke"))));
  return h("div", { class: "panels" },
    ofOwner.length ? h("section", { class: "panel" }, h("h2", null, "You"), drawTokens(ofOwner)) : null,
    found.accounts.map((/** @type {any} */ account) => h("section", { class: "panel" },
      h("div", { class: "head" }, h("h2", null, ...text(account.name)), account.peer ? h("span", { class: "badge" }, "another server") : null, h("div", { class: "spring" }),
        h("button", { type: "button", class: "button small", onclick: () => askForAccount(account.name, after) }, "New token"),
        h("button", { type: "button", class: "button small danger", "aria-label": `Remove ${account.name}`, onclick: () => remove(account.name) }, "Remove")),
      drawTokens(found.tokens.filter((/** @type {any} */ each) => each.account === account.name)))));
}

/** @param {any} found @param {() => any} after */
function drawGrants(found, after) {
  const granted = new Map(found.grants.map((/** @type {any} */ each) => [`${each.account} ${each.project}`, each.access]));
  /** @param {string} account @param {string} project */
  const cell = (account, project) => {
    const now = granted.get(`${account} ${project}`) ?? "";
    const choice = h("select", { "aria-label": `Access of ${account} to ${project}`, disabled: server.read_only }, [...new Set([...LEVELS, now])].map((level) => h("option", { value: level, selected: level === now }, level || "none")));
    const set = (/** @type {string} */ level) => change("set_access", { account, project, access: level || undefined });
    let before = now;
    choice.addEventListener("change", async () => {
      const [was, level] = [before, choice.value];
      try {
        await set(level);
        before = level;
        tellReversible(level ? `${account} may ${level} ${project}.` : `${account} no longer sees ${project}.`, () => set(was), after);
      } catch (error) {
        tellError(error);
        await after();
      }
    });
    return choice;
  };
  return h("section", { class: "panel" }, h("h2", null, "Access to projects"),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Access by project and account" }, h("table", { class: "grid" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Project"), found.accounts.map((/** @type {any} */ each) => h("th", { scope: "col" }, ...text(each.name))))),
      h("tbody", null, projects.map((project) => h("tr", null, h("th", { scope: "row" }, ...text(project.name)), found.accounts.map((/** @type {any} */ each) => h("td", null, cell(each.name, project.name)))))))));
}

/** @param {string} account @param {() => any} after */
function askForAccount(account, after) {
  /** @param {string} name */
  const make = async (name) => {
    const made = await change("create_account_token", { account: name });
    await after();
    openDialog({
      title: `Token for ${made.account}`,
      body: [h("p", null, "Everkept shows it only now. Copy it and pass it on privately."), h("p", { class: "command" }, h("code", { class: "secret" }, made.secret), copyButton(made.secret, "Copy the token"))],
      buttons: [{ label: "Done", kind: "main", run: () => undefined }],
    });
  };
  if (account) return make(account).catch(tellError);
  return ask("Create a token", { label: "Name of the person", hint: "Creates the account if it does not exist." }, "Create", make);
}

/** @param {any} found */
function drawCalls(found) {
  if (!found.calls.length) return h("p", { class: "mute" }, "No call matches. Calls of other people and your own commands about them appear here.");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Calls" }, h("table", { class: "grid" },
    h("thead", null, h("tr", null, ["When", "Who", "Call", "Project", "Result"].map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", null, found.calls.map((/** @type {any} */ each) => h("tr", null,
      h("td", null, when(each.at)), h("td", null, ...text(each.user ?? "you")), h("td", null, ...text([each.what, each.about].filter(Boolean).join(" "))), h("td", null, ...text(each.project ?? "")), h("td", null, ...text(each.outcome ?? "")))))));
}
