// @ts-check
/** Health: the assistants of this machine, and what the doctor finds, each with the command that fixes it. */

import { call } from "../api.js";
import { h, show as text } from "../dom.js";
import { head, newsButton } from "../parts/head.js";
import { command, fillWith } from "../parts/states.js";
import { server } from "../state.js";

const SAID = /** @type {const} */ ({ ok: ["good", "in order"], advice: ["", "advice"], problem: ["danger", "problem"] });

/** @type {Record<string, string>} */
const ENGINES = { sqlite: "SQLite", postgres: "PostgreSQL", surreal: "SurrealDB" };

const USES = { server: "Server", remote: "Server on another machine", hooks: "Hooks", plugin: "Plugin" };

/** @param {HTMLElement} main */
export async function show(main) {
  const findings = h("div", null);
  const clients = h("div", null);
  const draw = () => Promise.all([
    fillWith(findings, () => call("read_health"), (found) => h("ul", { class: "rows" }, order(found.findings).map(drawFinding))),
    fillWith(clients, () => call("list_clients"), (found) => drawClients(found.clients)),
  ]);
  const sections = h("div", { class: "sections" }, h("section", null, h("h2", null, "Checks"), findings), h("section", null, h("h2", null, "Assistants"), clients));
  const news = newsButton(draw, sections);
  main.append(head("Health", h("p", null, `Engine: ${ENGINES[server.engine] ?? server.engine}`), news.node, h("div", { class: "spring" }), h("button", { type: "button", class: "button", onclick: draw }, "Check again")), sections);
  await draw();
  return { changed: news.tell };
}

/** @param {any[]} clients */
function drawClients(clients) {
  const [here, others] = [clients.filter((each) => each.installed || each.uses.length || each.problem), clients.filter((each) => !each.installed && !each.uses.length && !each.problem)];
  return [
    here.length ? h("ul", { class: "rows" }, here.map(drawClient)) : h("p", { class: "soft" }, "No assistant was found on this machine."),
    others.length ? h("details", { class: "others" }, h("summary", { class: "soft" }, `${others.length} more that Everkept can connect`),
      h("ul", { class: "commands" }, others.map((each) => h("li", null, h("span", null, each.title), command(`everkept setup ${each.name}`))))) : null,
  ];
}

/** @param {any} client */
function drawClient(client) {
  const [kind, said] = client.problem ? ["warn", "not readable"] : client.uses.length ? ["good", "connected"] : ["", "not connected"];
  const missing = !client.uses.length ? `everkept setup ${client.name}` : client.can_hook && !client.has_hooks ? `everkept setup ${client.name} --hooks` : null;
  const told = client.problem ?? (client.uses.length ? client.uses.map((/** @type {keyof typeof USES} */ each) => USES[each]).join(", ") : "Installed on this machine.");
  return h("li", { class: "row narrow-stack" },
    h("div", { class: "fields" }, h("p", null, h("strong", null, client.title), " ", h("span", { class: "soft" }, ...text(told))), client.files.map((/** @type {string} */ each) => h("code", { class: "mute" }, ...text(each))), missing && !client.problem ? command(missing) : null),
    h("div", { class: "meta" }, h("span", { class: `badge ${kind}` }, said)));
}

/** @param {any[]} findings */
function order(findings) {
  const ranks = ["problem", "advice", "ok"];
  return [...findings].sort((a, b) => ranks.indexOf(a.severity) - ranks.indexOf(b.severity));
}

/** @param {any} finding */
function drawFinding(finding) {
  const [kind, said] = SAID[/** @type {keyof typeof SAID} */ (finding.severity)] ?? ["warn", finding.severity];
  return h("li", { class: "row narrow-stack" },
    h("div", { class: "fields" }, h("p", null, ...text(finding.what)), finding.command ? command(finding.command) : null),
    h("div", { class: "meta" }, h("span", null, finding.check), h("span", { class: `badge ${kind}` }, said)));
}
