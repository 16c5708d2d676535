// @ts-check
/** Times as people say them. */

import { h } from "../dom.js";

const UNITS = /** @type {const} */ ([["y", 31536000], ["mo", 2592000], ["d", 86400], ["h", 3600], ["min", 60]]);

/** @param {string} moment ISO 8601 */
export function formatAge(moment, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(moment)) / 1000);
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return "now";
}

/** @param {string} moment */
export function formatMoment(moment) {
  return new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }).format(new Date(moment));
}

/** How long until a moment, such as "in 3 d". @param {string} moment */
export function formatUntil(moment, now = Date.now()) {
  const then = Date.parse(moment);
  return then <= now ? "now" : `in ${formatAge(new Date(now).toISOString(), then)}`;
}

/** The age, with the full time on hover. @param {string | null | undefined} moment */
export function age(moment) {
  return moment ? h("time", { datetime: moment, title: formatMoment(moment) }, formatAge(moment)) : null;
}

/** The full time. @param {string | null | undefined} moment */
export function when(moment) {
  return moment ? h("time", { datetime: moment, title: moment }, formatMoment(moment)) : null;
}

/** @param {number} size bytes */
export function formatSize(size) {
  const units = ["B", "KB", "MB", "GB"];
  let step = 0;
  while (size >= 1000 && step < units.length - 1) [size, step] = [size / 1000, step + 1];
  return `${size < 10 && step ? size.toFixed(1) : Math.round(size)} ${units[step]}`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export function count(count, one, many = `${one}s`) {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}
