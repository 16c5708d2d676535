// @ts-check
/** Positions of a graph's nodes: springs along links, repulsion by a quadtree (Barnes and Hut), always the same for the same graph. */

const THETA = 0.9; // a far cell counts as one body
const REPULSION = 900;
const SPRING = 0.06;
const LENGTH = 46;
const GRAVITY = 0.012;
const DECAY = 0.6; // of the speed in each tick
const COOLING = 0.977;
const COLD = 0.005;
const WARM = 0.25; // of a layout that goes on from another one
const MOSTLY = 0.9;
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

export class Layout {
  /** @param {number} count @param {Int32Array} links source and target of each, one after another @param {Float32Array} [from] positions to go on from */
  constructor(count, links, from) {
    this.count = count;
    this.links = links;
    this.alpha = 1;
    this.positions = new Float32Array(count * 2);
    this.speeds = new Float32Array(count * 2);
    this.degrees = new Uint16Array(count);
    for (const end of links) this.degrees[end]++;
    let placed = 0;
    for (let i = 0; i < count; i++) {
      const radius = 14 * Math.sqrt(i + 0.5);
      const known = from && !Number.isNaN(from[2 * i]) && from.length > 2 * i;
      placed += Number(Boolean(known));
      this.positions[2 * i] = known ? from[2 * i] : radius * Math.cos(i * GOLDEN);
      this.positions[2 * i + 1] = known ? from[2 * i + 1] : radius * Math.sin(i * GOLDEN);
    }
    if (placed > count * MOSTLY) this.alpha = WARM;
    const cells = Math.max(64, count * 4);
    this.children = new Int32Array(cells * 4);
    this.masses = new Float32Array(cells);
    this.centers = new Float32Array(cells * 2);
    this.bodies = new Int32Array(cells);
    this.sizes = new Float32Array(cells);
    this.stack = new Int32Array(4096);
  }

  get isSettled() {
    return this.alpha < COLD;
  }

  tick() {
    this.alpha *= COOLING;
    this.build();
    const { positions, speeds, count, alpha } = this;
    for (let i = 0; i < count; i++) {
      this.repel(i);
      speeds[2 * i] -= positions[2 * i] * GRAVITY * alpha;
      speeds[2 * i + 1] -= positions[2 * i + 1] * GRAVITY * alpha;
    }
    this.pull();
    for (let i = 0; i < count * 2; i++) {
      speeds[i] *= DECAY;
      positions[i] += Math.max(-40, Math.min(40, speeds[i]));
    }
  }

  /** Springs. A link of a hub pulls its other end and hardly the hub. */
  pull() {
    const { links, positions, speeds, degrees, alpha } = this;
    for (let at = 0; at < links.length; at += 2) {
      const [a, b] = [links[at], links[at + 1]];
      const dx = positions[2 * b] - positions[2 * a] || 0.01;
      const dy = positions[2 * b + 1] - positions[2 * a + 1] || 0.01;
      const distance = Math.sqrt(dx * dx + dy * dy);
      const wanted = LENGTH + 4 * Math.sqrt(Math.min(degrees[a], degrees[b]));
      const force = (((distance - wanted) / distance) * alpha * SPRING * 10) / Math.sqrt(Math.min(degrees[a], degrees[b]) || 1);
      const share = degrees[a] / (degrees[a] + degrees[b]);
      speeds[2 * b] -= dx * force * share;
      speeds[2 * b + 1] -= dy * force * share;
      speeds[2 * a] += dx * force * (1 - share);
      speeds[2 * a + 1] += dy * force * (1 - share);
    }
  }

  /** Build the quadtree. Cell 0 is the root; a leaf holds a body. */
  build() {
    const { positions, count } = this;
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < count * 2; i++) {
      low = Math.min(low, positions[i]);
      high = Math.max(high, positions[i]);
    }
    this.used = 1;
    this.clear(0, Math.max(1, high - low));
    for (let i = 0; i < count; i++) this.insert(i, low, low);
    this.sum();
  }

  /** @param {number} cell @param {number} size */
  clear(cell, size) {
    this.children.fill(0, cell * 4, cell * 4 + 4);
    this.masses[cell] = 0;
    this.centers[2 * cell] = 0;
    this.centers[2 * cell + 1] = 0;
    this.bodies[cell] = -1;
    this.sizes[cell] = size;
  }

  /** @param {number} body @param {number} left @param {number} top */
  insert(body, left, top) {
    const { positions, children, bodies, sizes, masses } = this;
    const [x, y] = [positions[2 * body], positions[2 * body + 1]];
    let cell = 0;
    for (let depth = 0; ; depth++) {
      masses[cell]++;
      if (masses[cell] === 1) {
        bodies[cell] = body;
        break;
      }
      if (depth > 24 || /** @type {number} */ (this.used) + 2 >= masses.length) break; // bodies at one point count together
      const half = sizes[cell] / 2;
      if (bodies[cell] >= 0) {
        const other = bodies[cell];
        bodies[cell] = -1;
        const quarter = (positions[2 * other] >= left + half ? 1 : 0) + (positions[2 * other + 1] >= top + half ? 2 : 0);
        const child = this.add(cell, quarter, half);
        masses[child] = 1;
        bodies[child] = other;
      }
      const quarter = (x >= left + half ? 1 : 0) + (y >= top + half ? 2 : 0);
      if (quarter & 1) left += half;
      if (quarter & 2) top += half;
      cell = children[cell * 4 + quarter] || this.add(cell, quarter, half);
    }
  }

  /** @param {number} cell @param {number} quarter @param {number} size */
  add(cell, quarter, size) {
    const child = /** @type {number} */ (this.used)++;
    this.clear(child, size);
    this.children[cell * 4 + quarter] = child;
    return child;
  }

  /** Centers of mass. Children come after their parents, so one pass from the end is enough. */
  sum() {
    const { children, bodies, centers, masses, positions } = this;
    for (let cell = /** @type {number} */ (this.used) - 1; cell >= 0; cell--) {
      if (bodies[cell] >= 0) {
        centers[2 * cell] = positions[2 * bodies[cell]];
        centers[2 * cell + 1] = positions[2 * bodies[cell] + 1];
        continue;
      }
      let [x, y, mass] = [0, 0, 0];
      for (let quarter = 0; quarter < 4; quarter++) {
        const child = children[cell * 4 + quarter];
        if (!child) continue;
        x += centers[2 * child] * masses[child];
        y += centers[2 * child + 1] * masses[child];
        mass += masses[child];
      }
      if (mass) {
        centers[2 * cell] = x / mass;
        centers[2 * cell + 1] = y / mass;
        masses[cell] = mass;
      }
    }
  }

  /** @param {number} body */
  repel(body) {
    const { positions, speeds, children, bodies, centers, masses, sizes, stack, alpha } = this;
    const [x, y] = [positions[2 * body], positions[2 * body + 1]];
    let [fx, fy, top] = [0, 0, 1];
    stack[0] = 0;
    while (top > 0) {
      const cell = stack[--top];
      if (bodies[cell] === body || masses[cell] === 0) continue;
      let dx = x - centers[2 * cell];
      let dy = y - centers[2 * cell + 1];
      let square = dx * dx + dy * dy;
      if (bodies[cell] < 0 && sizes[cell] * sizes[cell] > THETA * THETA * square) {
        for (let quarter = 0; quarter < 4; quarter++) if (children[cell * 4 + quarter]) stack[top++] = children[cell * 4 + quarter];
        continue;
      }
      if (square < 1) {
        dx = ((body * 7919) % 13) - 6 + 0.5;
        dy = ((body * 104729) % 11) - 5 + 0.5;
        square = dx * dx + dy * dy;
      }
      const force = (REPULSION * masses[cell] * alpha) / (square + 100);
      const distance = Math.sqrt(square);
      fx += (dx / distance) * force * 0.12 * Math.min(1, 60 / Math.sqrt(distance + 1));
      fy += (dy / distance) * force * 0.12 * Math.min(1, 60 / Math.sqrt(distance + 1));
    }
    speeds[2 * body] += fx;
    speeds[2 * body + 1] += fy;
  }
}

/** The shortest way between two nodes along links in either direction. @param {number} count @param {Int32Array} links @param {number} from @param {number} to @returns {number[]} */
export function findPath(count, links, from, to) {
  const neighbors = Array.from({ length: count }, () => /** @type {number[]} */ ([]));
  for (let at = 0; at < links.length; at += 2) {
    neighbors[links[at]].push(links[at + 1]);
    neighbors[links[at + 1]].push(links[at]);
  }
  const before = new Int32Array(count).fill(-1);
  before[from] = from;
  const queue = [from];
  for (let at = 0; at < queue.length && before[to] < 0; at++) {
    for (const next of neighbors[queue[at]]) {
      if (before[next] >= 0) continue;
      before[next] = queue[at];
      queue.push(next);
    }
  }
  if (before[to] < 0) return [];
  const path = [to];
  while (path[0] !== from) path.unshift(before[path[0]]);
  return path;
}
