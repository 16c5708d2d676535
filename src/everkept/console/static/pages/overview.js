// @ts-check
/** Overview: what is remembered, how it grows, and what needs a look. */

import { call } from "../api.js";
import { h, icon, show as text } from "../dom.js";
import { drawBars, drawShares } from "../parts/charts.js";
import { head, newsButton } from "../parts/head.js";
import { command, fillWith } from "../parts/states.js";
import { age, count, formatSize } from "../parts/time.js";
import { place } from "../router.js";
import { getProject, isOwner, server } from "../state.js";

/** @param {HTMLElement} main */
export async function show(main) {
  const parts = h("div", { class: "panels" });
  const [counts, growth, kinds, recalled, changes, findings, files] = Array.from({ length: 7 }, () => h("section", { class: "panel" }));
  counts.classList.add("wide");
  if (isOwner()) {
    parts.append(counts, growth, kinds, recalled, changes, findings, files);
    void fillWith(findings, () => call("read_health"), drawFindings);
  } else parts.append(counts, kinds, changes);
  const draw = () => {
    void (isOwner() ? drawOwner({ counts, growth, kinds, recalled, files }) : drawAccount(counts, kinds));
    void fillWith(changes, () => call("list_changes", { project: getProject(), limit: 8 }), drawNewest);
  };
  const news = newsButton(draw, parts);
  main.append(head("Overview", news.node), parts);
  draw();
  return { changed: news.tell };
}

/** @param {Record<string, HTMLElement>} places */
async function drawOwner(places) {
  const reading = call("read_overview");
  await Promise.all([
    fillWith(places.counts, () => reading, (found) => [
      h("h2", null, "Everything stored"),
      drawNumbers([
        ["memories", found.totals.memories, place("memories")],
        ["automatic", found.totals.automatic, place("review")],
        ["entities", found.totals.entities, place("graph")],
        ["conversations", found.totals.conversations, place("conversations")],
        ["turns", found.totals.turns, place("conversations")],
        ["projects", found.totals.projects, place("projects")],
      ]),
      found.totals.without_vectors ? h("p", { class: "mute small" }, `Search by meaning does not find ${count(found.totals.without_vectors, "text")} yet. Search by words does.`) : null,
      found.totals.memories ? null : h("p", null, "Nothing is remembered yet. Connect an assistant: ", command("everkept setup")),
    ]),
    fillWith(places.growth, () => reading, (found) => [
      h("h2", null, "New memories by week"),
      drawWeeks(found.weeks, "memories", "No memory was stored in these weeks."),
      h("h2", null, "Turns of conversations by week"),
      drawWeeks(found.weeks, "turns", "No conversation was imported from these weeks."),
    ]),
    fillWith(places.kinds, () => reading, (found) => drawKinds(Object.entries(found.types))),
    fillWith(places.recalled, () => reading, (found) => [
      h("h2", null, "Recalled most"),
      found.recalled.length
        ? h("ol", { class: "short" }, found.recalled.slice(0, 8).map((/** @type {any} */ each) => h("li", null,
          h("a", { href: place("memories", each.id) }, ...text(each.content ?? each.id)), h("span", { class: "number mute" }, count(each.times ?? 0, "time")))))
        : h("p", { class: "mute" }, "No assistant has recalled a memory yet."),
    ]),
    fillWith(places.files, () => reading, (found) => [
      h("h2", null, "On disk"),
      h("p", null, `${formatSize(found.totals.size_bytes)} in `, h("code", null, ...text(server.data_dir ?? ""))),
      h("ul", { class: "short" }, [...found.files].sort((a, b) => b.size_bytes - a.size_bytes).slice(0, 6).map((each) => h("li", null, h("span", { class: "one-line" }, ...text(each.project ?? each.file)), h("span", { class: "number mute" }, formatSize(each.size_bytes))))),
    ]),
  ]);
}

/** @param {HTMLElement} counts @param {HTMLElement} kinds */
async function drawAccount(counts, kinds) {
  const reading = call("list_memories", { project: getProject(), limit: 1 });
  await Promise.all([
    fillWith(counts, () => reading, (found) => [h("h2", null, "You may see"), drawNumbers([["memories", found.total, place("memories")]])]),
    fillWith(kinds, () => reading, (found) => drawKinds(found.facets.type)),
  ]);
}

/** @param {any[]} weeks @param {"memories" | "turns"} what @param {string} none */
function drawWeeks(weeks, what, none) {
  if (!weeks.some((week) => week[what])) return h("p", { class: "mute" }, none);
  return drawBars(weeks.map((week) => ({ day: week.since, value: week[what] })), `New ${what} by week`);
}

/** @param {[string, number, string][]} numbers */
function drawNumbers(numbers) {
  return h("ul", { class: "numbers" }, numbers.map(([name, value, address]) => h("li", null, h("a", { href: address }, h("strong", { class: "number" }, value.toLocaleString()), h("span", null, name)))));
}

/** @param {[string, number][]} types */
function drawKinds(types) {
  return [h("h2", null, "Kinds of memories"), types.length ? drawShares(types, (type) => place("memories", "", { type })) : h("p", { class: "mute" }, "There are no memories yet.")];
}

/** @param {any} found */
function drawNewest(found) {
  return [
    h("h2", null, "Last changes"),
    found.changes.length
      ? h("ul", { class: "short" }, found.changes.map((/** @type {any} */ each) => h("li", null, h("a", { class: "one-line", href: place("log", each.change) }, ...text(each.summary)), age(each.at))))
      : h("p", { class: "mute" }, "Nothing has changed yet."),
  ];
}

/** @param {any} found */
function drawFindings(found) {
  const bad = found.findings.filter((/** @type {any} */ each) => each.severity !== "ok");
  return [
    h("h2", null, "Health"),
    bad.length
      ? h("ul", { class: "fields" }, bad.slice(0, 5).map((/** @type {any} */ each) => h("li", null, h("p", null, ...text(each.what)), each.command ? command(each.command) : null)))
      : h("p", null, icon("review"), " Everything is in order."),
    h("p", null, h("a", { href: place("health") }, "All checks")),
  ];
}
