// @ts-check
/** Markdown from tokens that the server made. Only these tags exist. */

import { h, link, show } from "../dom.js";
import { call } from "../api.js";

const BLOCKS = new Set(["p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s"]);
const CODE_LINES = 12; // longer code is folded
const TASK = /^\[[ xX]\] /;

/** @typedef {{tag: string, text?: string, href?: string, language?: string, start?: number, children?: Token[]}} Token */

/** @param {Token[]} tokens @returns {any[]} */
export function drawTokens(tokens) {
  return tokens.map(drawToken);
}

/** @param {Token} token @returns {any} */
function drawToken(token) {
  const inside = () => drawTokens(token.children ?? []);
  if (token.tag === "text") return show(token.text);
  if (token.tag === "br") return h("br", null);
  if (token.tag === "hr") return h("hr", null);
  if (token.tag === "code") return h("code", null, ...show(token.text));
  if (token.tag === "pre") return drawCode(token.text ?? "", token.language ?? "");
  if (token.tag === "a") return link(token.href ?? "", ...inside().flat());
  if (token.tag === "img") return link(token.href ?? "", `Image: ${token.text || "without a description"}`);
  // A text is a part of the page, so its first heading is of the third level.
  if (/^h[1-6]$/.test(token.tag)) return h(`h${Math.min(6, Number(token.tag[1]) + 2)}`, null, ...inside());
  if (token.tag === "li" && TASK.test(findLead(token)?.text ?? "")) return drawTask(token);
  if (BLOCKS.has(token.tag)) return h(token.tag, token.tag === "ol" && token.start ? { start: token.start } : null, ...inside());
  return inside();
}

/** The text that an item of a list begins with. @param {Token} item @returns {Token | undefined} */
function findLead({ children = [] }) {
  return children[0]?.tag === "p" ? children[0].children?.[0] : children[0];
}

/** An item of a list of tasks. @param {Token} item */
function drawTask(item) {
  const lead = findLead(item);
  const isDone = lead?.text?.[1] !== " ";
  const cut = (/** @type {Token} */ token) => (token === lead ? { ...token, text: token.text?.slice(4) } : token.tag === "p" ? { ...token, children: token.children?.map(cut) } : token);
  return h("li", { class: "task" }, h("span", { class: "box", role: "img", "aria-label": isDone ? "done" : "to do" }, isDone ? "☑" : "☐"), ...drawTokens((item.children ?? []).map(cut)).flat());
}

/** Code, folded if it is long. @param {string} text @param {string} language */
export function drawCode(text, language) {
  const lines = text.replace(/\n$/, "").split("\n");
  const code = h("pre", { tabindex: "0", "aria-label": language ? `Code in ${language}` : "Code" }, h("code", null, ...show(text)));
  if (lines.length <= CODE_LINES) return code;
  return h("details", null, h("summary", null, `${lines.length} lines${language ? ` of ${language}` : ""}: `, h("code", null, ...show(lines[0].slice(0, 60)))), code);
}

/** Read a text as Markdown. @param {string} text */
export async function renderMarkdown(text) {
  const { tokens, rest } = await call("read_markdown", { text });
  return h("div", { class: "prose" }, ...drawTokens(tokens), rest ? h("details", null, h("summary", null, "Show the rest as plain text"), h("div", { class: "plain" }, ...show(takeEnd(text, rest)))) : null);
}

/** The last characters, as the server counts them. @param {string} text @param {number} count */
export function takeEnd(text, count) {
  return count ? Array.from(text).slice(-count).join("") : "";
}
