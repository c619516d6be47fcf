// The node's public HTTP API, and whether it answers at all.
//
// A request that gets no answer makes the node `lost`; any answer brings it back. While it is lost only `main.js` asks,
// and whatever polls waits for it.

const TIMEOUT_MS = 15_000;

/** What the node said no with: status, code, what went wrong, and what to do about it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail || body?.title || `the node answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    this.fix = body?.fix ?? body?.hint ?? "";
    this.body = body ?? {};
  }
}

/** No answer came. */
export class Lost extends Error {
  constructor() {
    super("the node does not answer");
  }
}

class Connection extends EventTarget {
  since = null;

  get lost() {
    return this.since !== null;
  }

  fail() {
    if (this.lost) return;
    this.since = Date.now();
    this.dispatchEvent(new Event("lost"));
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
  const response = await request("GET", where, { query, signal, timeout });
  return response.status === 204 ? null : response.json();
}

/** The bytes of a GET, and its headers. */
export async function getBytes(where, query = {}, { signal } = {}) {
  const response = await request("GET", where, { query, signal });
  return { status: response.status, headers: response.headers, bytes: new Uint8Array(await response.arrayBuffer()) };
}

/** POST, PATCH, PUT, DELETE; a body that is no string and no bytes is sent as JSON. */
export async function send(method, where, body, { query, headers = {}, signal } = {}) {
  const response = await request(method, where, { query, body, headers, signal });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

async function request(method, where, { query = {}, body, headers = {}, signal, timeout = TIMEOUT_MS }) {
  const plain = body === undefined || typeof body === "string" || body instanceof Uint8Array;
  const all = plain ? headers : { "content-type": "application/json", ...headers };
  const limit = AbortSignal.timeout(timeout);
  let response;
  try {
    response = await fetch(where + search(query), {
      method,
      headers: all,
      body: plain ? body : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    connection.fail();
    throw new Lost();
  }
  if (!response.ok) {
    const problem = new Problem(response.status, await response.json().catch(() => null));
    if (problem.code !== "shutting-down") connection.heal();
    throw problem;
  }
  connection.heal();
  return response;
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
 * node is lost. What it throws goes to `failed`, but for a lost node and an aborted request. Gives a function that does it at once.
 */
export function poll(work, every, signal, failed = () => {}) {
  let timer = null;
  let running = false;
  const idle = () => document.hidden || connection.lost || signal.aborted;
  const run = async () => {
    clearTimeout(timer);
    if (running || idle()) return;
    running = true;
    try {
      await work();
    } catch (error) {
      if (!signal.aborted && !(error instanceof Lost)) failed(error);
    }
    running = false;
    if (!idle()) timer = setTimeout(run, every);
  };
  const options = { signal };
  document.addEventListener("visibilitychange", run, options);
  connection.addEventListener("back", run, options);
  signal.addEventListener("abort", () => clearTimeout(timer));
  run();
  return run;
}
