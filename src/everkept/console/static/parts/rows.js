// @ts-check
/** A long list of rows of equal height. Only the rows near the window are in the page. */

import { fill, h } from "../dom.js";
import { failure, skeleton } from "./states.js";

const AROUND = 12; // rows drawn above and below the window
const PAGE = 50;

/**
 * @template T
 * @typedef {{
 *   load: (start: number, limit: number) => Promise<{items: T[], total: number, [more: string]: any}>,
 *   draw: (item: T, index: number) => HTMLElement,
 *   key: (item: T) => string,
 *   height?: number,
 *   label: string,
 *   whenEmpty: () => HTMLElement,
 *   onFirst?: (page: any) => void,
 * }} RowsOptions
 */

/** @template T */
export class Rows {
  /** @param {RowsOptions<T>} options */
  constructor(options) {
    this.options = options;
    this.height = options.height ?? 64;
    /** @type {Map<number, T>} */
    this.items = new Map();
    this.total = 0;
    /** @type {Set<number>} */
    this.asked = new Set();
    /** @type {Map<string, HTMLElement>} */
    this.drawn = new Map();
    this.focused = -1;
    this.turn = 0;
    this.list = h("ul", { class: "rows virtual", "aria-label": options.label });
    this.node = h("div", null, this.list);
    this.draw = this.draw.bind(this);
    addEventListener("scroll", this.draw, { passive: true });
    addEventListener("resize", this.draw, { passive: true });
  }

  close() {
    removeEventListener("scroll", this.draw);
    removeEventListener("resize", this.draw);
  }

  /** Read the list from its beginning. What is shown stays until the answer is there. */
  async reload() {
    const turn = ++this.turn;
    const timer = setTimeout(() => turn === this.turn && !this.items.size && fill(this.node, skeleton()), 150);
    try {
      const page = await this.options.load(0, PAGE);
      if (turn !== this.turn) return;
      this.items.clear();
      this.asked.clear();
      this.asked.add(0);
      this.keep(0, page);
      this.options.onFirst?.(page);
      const shown = this.total ? this.list : this.options.whenEmpty();
      if (this.node.firstChild !== shown) fill(this.node, shown); // a list that moves loses the focus
      this.redraw();
    } catch (error) {
      if (turn === this.turn) fill(this.node, failure(error, () => this.reload()));
    } finally {
      clearTimeout(timer);
    }
  }

  /** @param {number} start @param {{items: T[], total: number}} page */
  keep(start, page) {
    page.items.forEach((item, index) => this.items.set(start + index, item));
    this.total = page.total;
    this.list.style.setProperty("height", `${this.total * this.height + 2}px`);
  }

  /** Draw every row again, for instance after another one was chosen. */
  redraw() {
    const focused = document.activeElement?.closest("[data-row]")?.getAttribute("data-row");
    this.drawn.clear();
    this.list.replaceChildren();
    this.draw();
    if (focused) this.list.querySelector(`[data-row="${focused}"] .open`)?.focus({ preventScroll: true });
  }

  draw() {
    if (!this.list.isConnected) return;
    const top = -this.list.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / this.height) - AROUND);
    const last = Math.min(this.total, Math.ceil((top + innerHeight) / this.height) + AROUND);
    const wanted = new Set();
    for (let index = first; index < last; index++) {
      const item = this.items.get(index);
      if (item === undefined) {
        void this.fetch(Math.floor(index / PAGE) * PAGE);
        continue;
      }
      const key = `${index} ${this.options.key(item)}`;
      wanted.add(key);
      if (!this.drawn.has(key)) this.drawn.set(key, this.add(item, index));
    }
    for (const [key, node] of this.drawn) {
      if (wanted.has(key) || node.contains(document.activeElement)) continue;
      node.remove();
      this.drawn.delete(key);
    }
  }

  /** @param {T} item @param {number} index */
  add(item, index) {
    const row = this.options.draw(item, index);
    row.style.setProperty("height", `${this.height}px`);
    const node = h("li", { "data-row": index, "aria-setsize": this.total, "aria-posinset": index + 1, style: { top: `${index * this.height}px`, height: `${this.height}px` } }, row);
    const after = [...this.list.children].find((each) => Number(each.getAttribute("data-row")) > index);
    this.list.insertBefore(node, after ?? null);
    return node;
  }

  /** @param {number} start */
  async fetch(start) {
    if (this.asked.has(start)) return;
    this.asked.add(start);
    const turn = this.turn;
    try {
      const page = await this.options.load(start, PAGE);
      if (turn !== this.turn) return;
      this.keep(start, page);
      this.draw();
    } catch {
      this.asked.delete(start);
    }
  }

  /** Move to the next or the previous row. @param {number} by */
  move(by) {
    const at = document.activeElement?.closest("[data-row]")?.getAttribute("data-row");
    const from = at === null || at === undefined ? this.focused : Number(at);
    this.focus(from < 0 ? 0 : from + by);
  }

  /** @param {number} index */
  focus(index) {
    if (!this.total) return;
    this.focused = Math.max(0, Math.min(this.total - 1, index));
    const top = this.list.getBoundingClientRect().top + scrollY + this.focused * this.height;
    const bar = 72;
    if (top < scrollY + bar) scrollTo({ top: top - bar });
    else if (top + this.height > scrollY + innerHeight - 16) scrollTo({ top: top + this.height - innerHeight + 80 });
    this.draw();
    this.list.querySelector(`[data-row="${this.focused}"] .open`)?.focus({ preventScroll: true });
  }

  /** The item whose row has the focus. @returns {T | undefined} */
  current() {
    const at = document.activeElement?.closest("[data-row]")?.getAttribute("data-row");
    return this.items.get(at === null || at === undefined ? this.focused : Number(at));
  }
}

/**
 * Turn pages with a cursor into pages by position.
 * @param {(cursor: string | undefined, limit: number) => Promise<{items: any[], cursor: string | null}>} read
 */
export function byCursor(read) {
  /** @type {any[]} */
  let items = [];
  /** @type {string | null | undefined} */
  let cursor;
  /** @type {Promise<void>} */
  let queue = Promise.resolve();
  return (/** @type {number} */ start, /** @type {number} */ limit) => {
    if (start === 0) [items, cursor] = [[], undefined];
    queue = queue.catch(() => undefined).then(async () => {
      while (items.length < start + limit && cursor !== null) {
        const page = await read(cursor, limit);
        items.push(...page.items);
        cursor = page.cursor;
      }
    });
    return queue.then(() => ({ items: items.slice(start, start + limit), total: items.length + (cursor ? limit : 0) }));
  };
}
