// @ts-check
/** Words on the drawing of a graph: names beside nodes, and what the chosen links say. They do not overlap. */

const MOST_LABELS = 80;
const LETTER = 6.6; // pixels of a letter, on average

/** @typedef {import("./drawing.js").Drawing} Drawing */
/** @typedef {[number, number, number, number]} Box left, top, right, bottom */

/** Names beside the nodes, where there is space. Return what is taken. @param {Drawing} drawing @param {Float32Array} xs @param {Float32Array} ys @param {number[]} seen @returns {Box[]} */
export function drawLabels(drawing, xs, ys, seen) {
  const { shape } = drawing;
  const isFirst = (/** @type {number} */ i) => i === drawing.chosen || drawing.path.has(i);
  const ordered = seen.filter((i) => drawing.radius(i) > 4 || seen.length <= MOST_LABELS || isFirst(i)).sort((a, b) => Number(b === drawing.chosen) - Number(a === drawing.chosen) || Number(drawing.path.has(b)) - Number(drawing.path.has(a)) || shape.degrees[b] - shape.degrees[a]);
  /** @type {Box[]} */
  const taken = seen.length > MOST_LABELS ? [] : seen.map((i) => [xs[i] - drawing.radius(i), ys[i] - drawing.radius(i), xs[i] + drawing.radius(i), ys[i] + drawing.radius(i)]);
  let drawn = 0;
  for (const i of ordered) {
    if (drawn >= MOST_LABELS) break;
    const name = shape.names[i].length > 28 ? `${shape.names[i].slice(0, 27)}…` : shape.names[i];
    const [away, wide] = [drawing.radius(i) + 4, name.length * LETTER];
    const places = [[xs[i] + away, ys[i]], [xs[i] - away - wide, ys[i]], [xs[i] - wide / 2, ys[i] + away + 7], [xs[i] - wide / 2, ys[i] - away - 7]];
    const place = places.find(([x, y]) => x > 0 && x + wide < drawing.canvas.clientWidth && isFree(taken, x, y, wide)) ?? (isFirst(i) ? places[0] : null);
    if (!place) continue;
    write(drawing, name, place[0], place[1], drawing.colors.text, 12);
    taken.push([place[0], place[1] - 7, place[0] + wide, place[1] + 7]);
    drawn++;
  }
  return taken;
}

/** What the links say, in their middle, where there is space. @param {Drawing} drawing @param {Float32Array} xs @param {Float32Array} ys @param {number[]} links @param {Box[]} taken */
export function drawVerbs(drawing, xs, ys, links, taken) {
  const { links: ends, verbs } = drawing.shape;
  if (verbs) for (const at of links) {
    const said = (verbs[at / 2] ?? "").replaceAll("_", " ").slice(0, 28);
    const wide = said.length * LETTER * 0.92;
    const [x, y] = [(xs[ends[at]] + xs[ends[at + 1]] - wide) / 2, (ys[ends[at]] + ys[ends[at + 1]]) / 2];
    if (!isFree(taken, x, y, wide)) continue;
    write(drawing, said, x, y, drawing.colors.accent, 11);
    taken.push([x, y - 7, x + wide, y + 7]);
  }
}

/** @param {Drawing} drawing @param {string} text @param {number} x @param {number} y @param {string} color @param {number} size */
function write(drawing, text, x, y, color, size) {
  const { context } = drawing;
  context.font = `${size}px ${drawing.colors.font}`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  context.strokeStyle = drawing.colors.surface;
  context.lineWidth = 3;
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}

/** @param {Box[]} taken @param {number} x @param {number} y the middle of the left edge @param {number} wide */
function isFree(taken, x, y, wide) {
  return !taken.some(([left, top, right, bottom]) => x < right && x + wide > left && y - 7 < bottom && y + 7 > top);
}
