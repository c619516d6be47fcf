// The node's public HTTP API, and whether it answers at all.
//
// A request that gets no answer makes the node `lost`; any answer of its own brings it back. What a proxy says in its
// place, or a page to log in, is none. While it is lost only `shell.js` asks, and whatever polls waits for it. A node that
// wants to know who is there makes the reader a `stranger`: then nothing is asked until he has signed in.

const TIMEOUT_MS = 15_000;
const BYTES_TIMEOUT_MS = 60_000;
/** After the node said that this is not for whoever asks. */
const REFUSED_MS = 30_000;
/** Tells the node that a page asks, and not the browser: else that would ask for a password by itself. */
const PAGE = { "logboom-page": "console" };
const OWN = ["application/json", "application/problem+json", "application/octet-stream"];

/** What the node said no with: status, code, what went wrong, and what to do about it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || `the node answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    this.fix = body?.fix ?? body?.hint ?? "";
    this.body = body ?? {};
  }

  /** Whether it is not for whoever asks, however often he does. */
  get isForbidden() {
    return this.code === "not-allowed";
  }
}

/** No answer came. Of what was to be changed nobody knows whether it was. */
export class Lost extends Error {
  constructor(isChange) {
    super(isChange ? "The node did not answer: this may have been done or not. Look before you do it again." : "The node does not answer.");
  }
}

class Connection extends EventTarget {
  since = null;
  /** What answers in the node's place; "" where nothing does. */
  instead = "";
  isStranger = false;
  /** Whether he could have gone on as one. */
  isByChoice = false;

  get lost() {
    return this.since !== null;
  }

  fail(instead = "") {
    this.instead = instead;
    if (this.lost) return;
    this.since = Date.now();
    this.dispatchEvent(new Event("lost"));
  }

  estrange(isByChoice = false) {
    if (this.isStranger) return;
    Object.assign(this, { isStranger: true, isByChoice });
    this.dispatchEvent(new Event("stranger"));
  }

  heal() {
    if (!this.lost) return;
    this.since = null;
    this.dispatchEvent(new Event("back"));
  }
}

export const connection = new Connection();

/** /topics/{name}/…, with names that may hold anything. */
export function path(...parts) {
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** JSON of a GET. Parameters that are null, undefined or "" are left out; a list is given several times. */
export async function get(where, query = {}, { signal, timeout } = {}) {
  const { content } = await request("GET", where, { query, signal, timeout }, (response) => response.text());
  return content === "" ? null : JSON.parse(content);
}

/** The bytes of a GET, and the status. There may be many, and the way may be slow. */
export async function getBytes(where, query = {}, { signal, timeout = BYTES_TIMEOUT_MS } = {}) {
  const { status, content } = await request("GET", where, { query, signal, timeout }, (response) => response.arrayBuffer());
  return { status, bytes: new Uint8Array(content) };
}

/** POST, PATCH, PUT, DELETE; a body that is no string and no bytes is sent as JSON. */
export async function send(method, where, body, { query, headers = {}, signal, isSignIn = false } = {}) {
  const { content } = await request(method, where, { query, body, headers, signal, isSignIn }, (response) => response.text());
  return content ? JSON.parse(content) : null;
}

/** {status, content}, of which `read(response)` makes the content. */
async function request(method, where, options, read) {
  const { signal, timeout = TIMEOUT_MS } = options;
  const limit = AbortSignal.timeout(timeout);
  const lose = (instead) => {
    connection.fail(instead);
    return new Lost(method !== "GET");
  };
  let response;
  let content;
  try {
    response = await ask(method, where, options, signal ? AbortSignal.any([signal, limit]) : limit);
    content = await (response.ok ? read(response) : response.text());
  } catch (error) {
    if (signal?.aborted) throw error;
    throw lose();
  }
  if (!isOwn(response)) throw lose(`something else answered ${response.status} in its place`);
  if (response.ok) {
    connection.heal();
    return { status: response.status, content };
  }
  const problem = new Problem(response.status, JSON.parse(content));
  if (problem.code !== "shutting-down") connection.heal();
  if (problem.status === 401 && !options.isSignIn) connection.estrange();
  throw problem;
}

function ask(method, where, { query = {}, body, headers = {} }, signal) {
  const plain = body === undefined || typeof body === "string" || body instanceof Uint8Array;
  const all = plain ? { ...PAGE, ...headers } : { ...PAGE, "content-type": "application/json", ...headers };
  return fetch(where + search(query), { method, headers: all, body: plain ? body : JSON.stringify(body), signal, cache: "no-store" });
}

/** Whether it is the node that answered: it speaks JSON, and says no in JSON too. */
function isOwn(response) {
  const type = (response.headers.get("content-type") ?? "").split(";")[0];
  if (response.ok) return response.status === 204 || OWN.includes(type);
  return type === "application/problem+json";
}

function search(query) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") pairs.append(name, String(one));
    }
  }
  const text = pairs.toString();
  return text && `?${text}`;
}

/**
 * Do `work` now and again `every` ms after it has ended, until `signal` is aborted; not while the page is hidden or the
 * node is lost or does not know who asks. What it throws goes to `failed`, but for a lost node and an aborted request. Gives a function that does it at once.
 */
export function poll(work, every, signal, failed = () => {}) {
  let timer = null;
  let running = false;
  const idle = () => document.hidden || connection.lost || connection.isStranger || signal.aborted;
  const run = async () => {
    clearTimeout(timer);
    if (running || idle()) return;
    running = true;
    let pause = every;
    try {
      await work();
    } catch (error) {
      if (error.isForbidden) pause = Math.max(every, REFUSED_MS);
      if (!signal.aborted && !(error instanceof Lost) && error.status !== 401) failed(error);
    } finally {
      running = false;
      if (!idle()) timer = setTimeout(run, pause);
    }
  };
  const options = { signal };
  document.addEventListener("visibilitychange", run, options);
  connection.addEventListener("back", run, options);
  signal.addEventListener("abort", () => clearTimeout(timer));
  run();
  return run;
}
