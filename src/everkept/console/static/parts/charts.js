// @ts-check
/** Small charts of one colour, with their numbers for people who cannot see them. */

import { h, s } from "../dom.js";

/** @param {string} day such as 2026-11-13 */
function formatDay(day) {
  return new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" }).format(new Date(day));
}

/** Bars over time. @param {{day: string, value: number}[]} weeks @param {string} what */
export function drawBars(weeks, what) {
  const points = weeks.map(({ day, value }) => ({ label: formatDay(day), value }));
  const [width, height, gap] = [320, 72, 3];
  const most = Math.max(1, ...points.map((each) => each.value));
  const step = width / Math.max(1, points.length);
  const chart = s("svg", { viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": `${what}: ${points.map((each) => `${each.label} ${each.value}`).join(", ")}`, class: "chart" });
  points.forEach((point, index) => {
    const size = point.value ? Math.max(2, (point.value / most) * height) : 0;
    const bar = s("rect", { x: index * step, y: height - size, width: Math.max(1, step - gap), height: size, class: "bar-of-chart" });
    bar.append(s("title", null, `${point.label}: ${point.value}`));
    chart.append(bar);
  });
  if (points.length) {
    chart.append(s("text", { x: 0, y: height + 14 }, points[0].label));
    const last = s("text", { x: width, y: height + 14, class: "end" }, points[points.length - 1].label);
    chart.append(last);
  }
  return chart;
}

/** Shares as bars with words. @param {[string, number][]} shares @param {(name: string) => string} [address] */
export function drawShares(shares, address) {
  const most = Math.max(1, ...shares.map(([, value]) => value));
  return h("ul", { class: "shares" }, shares.map(([name, value]) => h("li", null,
    address ? h("a", { href: address(name) }, name) : h("span", null, name),
    h("span", { class: "share-bar", "aria-hidden": "true" }, h("i", { style: { width: `${(value / most) * 100}%` } })),
    h("span", { class: "number mute" }, value.toLocaleString()))));
}
