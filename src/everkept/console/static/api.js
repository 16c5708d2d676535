// @ts-check
/** Calls to the server, the session, and the stream of changes. */

const API = "/console/api/";
const KEY = "everkept-session";
const PEERS = "everkept-console";
const PEER_WAIT = 150;
const RETRY_WAIT = 3000;

let token = "";
let wroteAt = 0;
/** @type {() => void} */
let onEnded = () => undefined;

/** An answer that is a refusal: its message, a hint, and what kind of refusal it is. */
export class ApiError extends Error {
  /** @param {{error: string, message: string, hint?: string}} facts */
  constructor(facts) {
    super(facts.message);
    this.kind = facts.error;
    this.hint = facts.hint ?? "";
    this.facts = facts;
  }
}

let running = 0;

/** Mark the page as busy until the work is done. @template T @param {Promise<T>} work @returns {Promise<T>} */
export async function track(work) {
  document.documentElement.dataset.busy = String(++running);
  try {
    return await work;
  } finally {
    if (--running) document.documentElement.dataset.busy = String(running);
    else delete document.documentElement.dataset.busy;
  }
}

/** @param {string} path @param {object} body @param {AbortSignal} [signal] @param {string} [bearer] */
async function post(path, body, signal, bearer = token) {
  const headers = { "Content-Type": "application/json", ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}) };
  try {
    return await fetch(API + path, { method: "POST", headers, body: JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError({ error: "away", message: "The server does not answer.", hint: "Run `everkept console` again." });
  }
}

/** @param {Response} response */
async function readAnswer(response) {
  const answer = await response.json().catch(() => ({ error: { error: "away", message: "The server sent no answer." } }));
  if (response.status === 401) endSession();
  if (answer.error) throw new ApiError(answer.error);
  return answer;
}

/**
 * Call a tool and return what it answers.
 * @param {string} name
 * @param {Record<string, any>} [args] without the ones that are undefined
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function call(name, args = {}, signal) {
  return callIn(undefined, name, args, signal);
}

/**
 * Call a tool that takes no project, as if this project had been switched to.
 * @param {string | undefined} project
 * @param {string} name
 * @param {Record<string, any>} args
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function callIn(project, name, args, signal) {
  const given = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined && value !== null));
  return (await track(post("call", { name, arguments: given, project }, signal).then(readAnswer))).result;
}

/** Call a tool that changes something. @param {string} name @param {Record<string, any>} args */
export async function change(name, args) {
  wroteAt = Date.now();
  try {
    return await call(name, args);
  } finally {
    wroteAt = Date.now();
  }
}

/** Whether this page itself changed something a moment ago. */
export function hasJustWritten() {
  return Date.now() - wroteAt < 2500;
}

/** Begin or continue a session. Return whether there is one. @param {() => void} ended called when it ends */
export async function begin(ended) {
  onEnded = ended;
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", `${location.pathname}#/`);
    keep((await readAnswer(await post("session", { code }))).token);
  } else {
    token = sessionStorage.getItem(KEY) ?? (await askPeers());
  }
  if (token) answerPeers();
  return Boolean(token);
}

/** Use the token of an account. @param {string} given */
export async function useToken(given) {
  const tried = given.trim();
  await readAnswer(await post("call", { name: "read_console_state", arguments: {} }, undefined, tried));
  keep(tried);
  answerPeers();
}

/** End the session on the server too. */
export async function lock() {
  await post("lock", {}).catch(() => undefined);
  endSession();
}

/** @param {string} given */
function keep(given) {
  token = given;
  sessionStorage.setItem(KEY, given);
}

function endSession() {
  const had = token;
  token = "";
  sessionStorage.removeItem(KEY);
  if (had) onEnded();
}

/** Ask the other tabs of this address for their session. @returns {Promise<string>} */
function askPeers() {
  return new Promise((resolve) => {
    const channel = new BroadcastChannel(PEERS);
    const finish = (/** @type {string} */ found) => {
      channel.close();
      if (found) sessionStorage.setItem(KEY, found);
      resolve(found);
    };
    channel.onmessage = (event) => event.data?.token && finish(event.data.token);
    channel.postMessage({ asks: true });
    setTimeout(() => finish(""), PEER_WAIT);
  });
}

function answerPeers() {
  const channel = new BroadcastChannel(PEERS);
  channel.onmessage = (event) => event.data?.asks && token && channel.postMessage({ token });
}

/**
 * Follow the newest change of each project, or the state of a page that has one. Call `stop` of the answer to end it.
 * @param {string | undefined} project
 * @param {string | undefined} page
 * @param {(changes: Record<string, number | string>, problem?: string) => void} tell
 */
export function watch(project, page, tell) {
  const stopping = new AbortController();
  const run = async () => {
    while (!stopping.signal.aborted && token) {
      try {
        const response = await post("watch", { project, page }, stopping.signal);
        if (response.status === 401) return endSession();
        await readLines(response, (line) => tell(line.changes, line.problem));
      } catch {
        if (stopping.signal.aborted) return;
        tell({}, "The server does not answer. Changes are not shown until it does.");
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_WAIT));
    }
  };
  void run();
  return { stop: () => stopping.abort() };
}

/** @param {Response} response @param {(line: any) => void} tell */
async function readLines(response, tell) {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) tell(JSON.parse(line));
  }
}
