// @ts-check
/** Lays a graph out beside the page, and sends positions on the way. */

import { Layout } from "./layout.js";

const QUIET = 1000; // nodes; smaller graphs settle a while before they are first shown
const QUIET_TICKS = 120;
const EVERY = 3; // ticks between two pictures

let turn = 0;

onmessage = async (event) => {
  const mine = ++turn;
  const { count, links, from, still } = event.data;
  const layout = new Layout(count, links, from);
  const quiet = still ? Infinity : count < QUIET ? QUIET_TICKS : 0;
  for (let tick = 1; !layout.isSettled; tick++) {
    layout.tick();
    if (tick < quiet || tick % EVERY) continue;
    send(layout, false);
    await new Promise((resolve) => setTimeout(resolve));
    if (mine !== turn) return;
  }
  send(layout, true);
};

/** @param {Layout} layout @param {boolean} settled */
function send(layout, settled) {
  const positions = layout.positions.slice();
  postMessage({ positions, settled }, { transfer: [positions.buffer] });
}
