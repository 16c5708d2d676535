// @ts-check
/** The host that shows a view in a chat: JSON-RPC 2.0 over messages, as MCP Apps of 2026-01-26 says. */

const VERSION = "2026-01-26";
const REPORT_WAIT = 100; // milliseconds in which changes of size become one report
const METHOD_NOT_FOUND = -32601;

/** @typedef {{input: (args: any) => void, result: (result: any) => void, cancelled: () => void, context: (context: any) => void, close: () => void}} Listener */

export class Host {
  /** @param {Listener} on */
  constructor(on) {
    this.on = on;
    /** @type {any} */
    this.context = {};
    /** @type {any} */
    this.capabilities = {};
    /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void}>} */
    this.pending = new Map();
    this.last = 0;
    this.receive = this.receive.bind(this);
    addEventListener("message", this.receive);
  }

  async connect() {
    const answer = await this.request("ui/initialize", {
      appInfo: { name: "everkept", title: "Everkept", version: "1" },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
      protocolVersion: VERSION,
    });
    this.capabilities = answer.hostCapabilities ?? {};
    this.mergeContext(answer.hostContext ?? {});
    this.notify("ui/notifications/initialized", {});
    this.watcher = new ResizeObserver(() => this.reportSize());
    this.watcher.observe(document.body);
  }

  /** Whether the view may call tools of its server. */
  get canCall() {
    return Boolean(this.capabilities.serverTools);
  }

  /** Call a tool. An error of the tool is thrown. @param {string} name @param {Record<string, any>} args */
  async callTool(name, args) {
    const result = await this.request("tools/call", { name, arguments: args });
    if (result.isError) throw new Error(explain(result));
    return result.structuredContent ?? {};
  }

  /** @param {string} method @param {any} params @returns {Promise<any>} */
  request(method, params) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.post({ id, method, params });
    });
  }

  /** @param {string} method @param {any} params */
  notify(method, params) {
    this.post({ method, params });
  }

  /** @param {any} message */
  post(message) {
    parent.postMessage({ jsonrpc: "2.0", ...message }, "*"); // the origin of a host is not known before
  }

  /** @param {MessageEvent} event */
  receive(event) {
    const message = event.data;
    if (event.source !== parent || message?.jsonrpc !== "2.0") return;
    if (typeof message.method !== "string") this.settle(message);
    else if (message.id === undefined) this.hear(message.method, message.params ?? {});
    else if (message.method === "ui/resource-teardown") this.close(message.id);
    else if (message.method === "ping") this.post({ id: message.id, result: {} });
    else this.post({ id: message.id, error: { code: METHOD_NOT_FOUND, message: `Method not found: ${message.method}` } });
  }

  /** @param {any} message */
  settle({ id, result, error }) {
    const waiting = this.pending.get(id);
    this.pending.delete(id);
    if (error) waiting?.reject(new Error(error.message ?? "The host refused this."));
    else waiting?.resolve(result ?? {});
  }

  /** @param {string} method @param {any} params */
  hear(method, params) {
    if (method === "ui/notifications/tool-input") this.on.input(params.arguments ?? {});
    else if (method === "ui/notifications/tool-result") this.on.result(params);
    else if (method === "ui/notifications/tool-cancelled") this.on.cancelled();
    else if (method === "ui/notifications/host-context-changed") this.mergeContext(params);
  }

  /** @param {any} part */
  mergeContext(part) {
    this.context = { ...this.context, ...part };
    this.on.context(this.context);
  }

  reportSize() {
    if (this.reporting) return;
    this.reporting = setTimeout(() => {
      this.reporting = 0;
      const { width, height } = document.body.getBoundingClientRect();
      this.notify("ui/notifications/size-changed", { width: Math.ceil(width), height: Math.ceil(height) });
    }, REPORT_WAIT);
  }

  /** @param {number | string} id */
  close(id) {
    this.on.close();
    this.watcher?.disconnect();
    clearTimeout(this.reporting);
    removeEventListener("message", this.receive);
    this.post({ id, result: {} });
  }
}

/** What a failed tool said. @param {any} result */
export function explain(result) {
  const { message, hint } = result.structuredContent ?? {};
  const text = (result.content ?? []).filter((/** @type {any} */ each) => each.type === "text").map((/** @type {any} */ each) => each.text).join("\n");
  return message ? [message, hint].filter(Boolean).join(" ") : text || "The tool failed.";
}
