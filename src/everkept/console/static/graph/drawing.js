// @ts-check
/** A graph on a canvas: draws what is in view, finds what is under the pointer, pans and zooms. */

import { drawLabels, drawVerbs } from "./labels.js";

const MANY_LINKS = 8000; // beyond them, links are left out while the hand moves
const REST = 140; // milliseconds after which the hand counts as still

const MOST_VERBS = 24; // links of the chosen node that are named
const FEW_LINKS = 400; // up to so many are drawn stronger

/** @typedef {{names: string[], types: string[], type_of: number[], degrees: number[], links: Int32Array, verbs?: string[]}} Shape `verbs` has one of each link */

export class Drawing {
  /** @param {HTMLCanvasElement} canvas @param {{choose: (node: number) => void, expand: (node: number) => void, zooms?: (event: WheelEvent) => boolean}} on `zooms` says whether a wheel zooms; otherwise it always does */
  constructor(canvas, on) {
    this.canvas = canvas;
    this.on = on;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Shape} */
    this.shape = { names: [], types: [], type_of: [], degrees: [], links: new Int32Array() };
    this.positions = new Float32Array();
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.chosen = -1;
    /** @type {Set<number>} */
    this.path = new Set();
    /** @type {Set<number>} */
    this.hidden = new Set();
    this.isMoving = false;
    this.isAsked = false;
    this.frames = 0;
    this.hasFitted = false;
    this.colors = readColors();
    this.listen();
  }

  /** @param {Shape} shape @param {Float32Array} [from] places that stay, with NaN for unknown ones; then the view stays too */
  setShape(shape, from) {
    this.shape = shape;
    this.positions = from?.slice() ?? new Float32Array(shape.names.length * 2);
    this.hasFitted = Boolean(from);
    this.chosen = -1;
    this.path = new Set();
  }

  /** @param {Float32Array} positions @param {boolean} settled */
  setPositions(positions, settled) {
    this.positions = positions;
    if (!this.hasFitted || settled) this.fit(!this.hasFitted);
    this.ask();
  }

  /** Show the whole graph. @param {boolean} [force] */
  fit(force = true) {
    if (!force && this.wasMoved) return;
    const { positions } = this;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (let i = 0; i < positions.length; i += 2) {
      left = Math.min(left, positions[i]);
      right = Math.max(right, positions[i]);
      top = Math.min(top, positions[i + 1]);
      bottom = Math.max(bottom, positions[i + 1]);
    }
    if (left > right) return;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.scale = Math.min(3.5, (width * 0.75) / (right - left || 1), (height * 0.8) / (bottom - top || 1)); // the rest is for labels
    this.x = (left + right) / 2;
    this.y = (top + bottom) / 2;
    this.hasFitted = true;
    this.ask();
  }

  /** @param {number} factor @param {number} [px] @param {number} [py] the point that stays */
  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const [x, y] = this.toGraph(px, py);
    this.scale = Math.max(0.02, Math.min(8, this.scale * factor));
    this.x = x - (px - this.canvas.clientWidth / 2) / this.scale;
    this.y = y - (py - this.canvas.clientHeight / 2) / this.scale;
    this.move();
  }

  /** @param {number} dx @param {number} dy pixels */
  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.move();
  }

  /** @param {number} node */
  center(node) {
    this.x = this.positions[2 * node];
    this.y = this.positions[2 * node + 1];
    this.scale = Math.max(this.scale, 0.9);
    this.ask();
  }

  move() {
    this.isMoving = true;
    this.wasMoved = true;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.isMoving = false;
      this.ask();
    }, REST);
    this.ask();
  }

  ask() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.draw();
    });
  }

  /** @param {number} px @param {number} py */
  toGraph(px, py) {
    return [(px - this.canvas.clientWidth / 2) / this.scale + this.x, (py - this.canvas.clientHeight / 2) / this.scale + this.y];
  }

  /** @param {number} node @returns {[number, number]} */
  toScreen(node) {
    return [(this.positions[2 * node] - this.x) * this.scale + this.canvas.clientWidth / 2, (this.positions[2 * node + 1] - this.y) * this.scale + this.canvas.clientHeight / 2];
  }

  /** @param {number} node */
  radius(node) {
    return Math.max(1.6, (3.2 + 1.5 * Math.sqrt(this.shape.degrees[node])) * Math.min(1.6, Math.max(0.25, this.scale)));
  }

  draw() {
    const { canvas, context } = this;
    const ratio = Math.min(2, devicePixelRatio || 1);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.frames++;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const count = this.shape.names.length;
    const xs = new Float32Array(count);
    const ys = new Float32Array(count);
    const seen = [];
    for (let i = 0; i < count; i++) {
      xs[i] = (this.positions[2 * i] - this.x) * this.scale + width / 2;
      ys[i] = (this.positions[2 * i + 1] - this.y) * this.scale + height / 2;
      if (!this.hidden.has(this.shape.type_of[i]) && xs[i] > -20 && ys[i] > -20 && xs[i] < width + 20 && ys[i] < height + 20) seen.push(i);
    }
    const strong = this.drawLinks(xs, ys, width, height);
    this.drawNodes(xs, ys, seen);
    if (this.isMoving && seen.length > 2000) return;
    const taken = drawLabels(this, xs, ys, seen);
    if (strong.length <= MOST_VERBS) drawVerbs(this, xs, ys, strong, taken);
  }

  /** Return the links of the chosen node and of the path, which are drawn stronger. @param {Float32Array} xs @param {Float32Array} ys @param {number} width @param {number} height */
  drawLinks(xs, ys, width, height) {
    const { context, shape } = this;
    const { links, type_of } = shape;
    /** @type {number[]} */
    const found = [];
    if (this.isMoving && links.length > MANY_LINKS * 2) return found;
    const strong = new Path2D();
    context.beginPath();
    for (let at = 0; at < links.length; at += 2) {
      const [a, b] = [links[at], links[at + 1]];
      if (this.hidden.has(type_of[a]) || this.hidden.has(type_of[b])) continue;
      if ((xs[a] < 0 && xs[b] < 0) || (ys[a] < 0 && ys[b] < 0) || (xs[a] > width && xs[b] > width) || (ys[a] > height && ys[b] > height)) continue;
      const isStrong = a === this.chosen || b === this.chosen || (this.path.has(a) && this.path.has(b));
      if (isStrong) found.push(at);
      const target = isStrong ? strong : context;
      target.moveTo(xs[a], ys[a]);
      target.lineTo(xs[b], ys[b]);
    }
    context.strokeStyle = this.colors.link;
    context.globalAlpha = links.length <= FEW_LINKS * 2 ? 0.55 : 0.3;
    context.lineWidth = 1;
    context.stroke();
    context.globalAlpha = 1;
    context.strokeStyle = this.colors.accent;
    context.lineWidth = 1.6;
    context.stroke(strong);
    return found;
  }

  /** One path for each type. Types differ by colour and by shape. @param {Float32Array} xs @param {Float32Array} ys @param {number[]} seen */
  drawNodes(xs, ys, seen) {
    const { context, shape } = this;
    /** @type {Path2D[]} */
    const paths = Array.from({ length: 6 }, () => new Path2D());
    for (const i of seen) trace(paths[shape.type_of[i] % 6], shape.type_of[i] % 6, xs[i], ys[i], this.radius(i));
    const rings = new Path2D(); // no link shows in them
    for (const i of seen) if (shape.type_of[i] % 6 === 5) trace(rings, 0, xs[i], ys[i], this.radius(i));
    context.fillStyle = this.colors.surface;
    context.fill(rings);
    paths.forEach((path, kind) => {
      context.fillStyle = this.colors.kinds[kind];
      context.fill(path);
    });
    for (const i of this.path.size ? this.path : this.chosen >= 0 ? [this.chosen] : []) {
      context.beginPath();
      context.arc(xs[i], ys[i], this.radius(i) + 3, 0, 7);
      context.strokeStyle = this.colors.accent;
      context.lineWidth = 2;
      context.stroke();
    }
  }

  /** The node at a point, or -1. @param {number} px @param {number} py */
  pick(px, py) {
    let [best, nearest] = [-1, 14 * 14];
    for (let i = 0; i < this.shape.names.length; i++) {
      if (this.hidden.has(this.shape.type_of[i])) continue;
      const [x, y] = this.toScreen(i);
      const square = (x - px) ** 2 + (y - py) ** 2;
      if (square < Math.max(nearest, best < 0 ? this.radius(i) ** 2 : 0) && square < nearest + this.radius(i) ** 2) [best, nearest] = [i, square];
    }
    return best;
  }

  listen() {
    const { canvas } = this;
    /** @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    let travelled = 0;
    canvas.addEventListener("wheel", (event) => {
      if (this.on.zooms && !this.on.zooms(event)) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
      travelled = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
      travelled += Math.abs(dx) + Math.abs(dy);
      const others = [...fingers.values()].filter((each) => each.pointerId !== event.pointerId);
      if (others.length) {
        const gap = (/** @type {PointerEvent} */ one) => Math.hypot(one.clientX - others[0].clientX, one.clientY - others[0].clientY);
        this.zoom(gap(event) / Math.max(1, gap(before)));
      } else if (travelled > 4) this.pan(dx, dy);
      fingers.set(event.pointerId, event);
    });
    for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) canvas.addEventListener(name, (event) => {
      fingers.delete(event.pointerId);
      if (name === "pointerup" && travelled <= 4) this.on.choose(this.pick(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("dblclick", (event) => this.on.expand(this.pick(event.offsetX, event.offsetY)));
    this.watcher = new ResizeObserver(() => this.ask());
    this.watcher.observe(canvas);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.recolor = () => {
      this.colors = readColors();
      this.ask();
    };
    this.dark.addEventListener("change", this.recolor);
    this.themes = new MutationObserver(this.recolor);
    this.themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  close() {
    this.watcher?.disconnect();
    this.themes?.disconnect();
    if (this.recolor) this.dark?.removeEventListener("change", this.recolor);
  }
}

/** @param {Path2D} path @param {number} kind @param {number} x @param {number} y @param {number} r */
function trace(path, kind, x, y, r) {
  const corners = [0, 4, 4, 3, 6, 0][kind];
  if (!corners) {
    path.moveTo(x + r, y);
    path.arc(x, y, r, 0, 7);
    if (kind === 5 && r > 3) {
      path.moveTo(x + r / 2, y);
      path.arc(x, y, r / 2, 0, 7, true);
    }
    return;
  }
  const turn = [0, Math.PI / 4, 0, -Math.PI / 2, 0, 0][kind];
  for (let at = 0; at <= corners; at++) {
    const angle = turn + (at * 2 * Math.PI) / corners;
    const [px, py] = [x + r * 1.15 * Math.cos(angle), y + r * 1.15 * Math.sin(angle)];
    if (at) path.lineTo(px, py);
    else path.moveTo(px, py);
  }
}

function readColors() {
  // A custom property keeps `light-dark()` as written, so the colour is read from an element that uses it.
  const probe = document.body.appendChild(document.createElement("i"));
  const read = (/** @type {string} */ name) => {
    probe.style.setProperty("color", `var(--${name})`);
    return getComputedStyle(probe).color;
  };
  const colors = {
    text: read("text"), surface: read("surface"), link: read("mute"), accent: read("accent"), kinds: [0, 1, 2, 3, 4, 5].map((each) => read(`kind-${each}`)),
    font: getComputedStyle(document.body).fontFamily,
  };
  probe.remove();
  return colors;
}
