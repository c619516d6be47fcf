// What a node without topics shows: how to write and read a first record, with the node's own address.

import { get } from "../node/api.js";
import { copyText } from "../page/clipboard.js";
import { el } from "../page/dom.js";

const BINARY_PORT = 1773;
const HERE = ["127.0.0.1", "localhost", "[::1]"];
const ANYWHERE = ["0.0.0.0", "[::]", ""];

/** `prepare()` asks for the node's addresses, once; it is not needed before somebody is to look at this. */
export class FirstSteps {
  #asked = null;

  constructor() {
    this.element = el("div", { class: "first-steps", hidden: true });
  }

  prepare() {
    this.#asked ??= get("/config").catch(() => ({})).then((config) => {
      const isMade = config["topics.auto_create"]?.value !== false;
      this.element.replaceChildren(el("h3", { text: "This node has no topics yet" }), ...steps(serverOf(config), isMade));
    });
    return this.#asked;
  }
}

function steps(server, isMade) {
  const records = `${location.origin}/topics/events/records`;
  const found = isMade ? [] : [["Make a topic", `curl ${location.origin}/topics -d '{"name": "events"}'`]];
  found.push(
    [isMade ? "Write a record: that makes the topic" : "Write a record", `curl ${records} -d '{"value": {"celsius": 21.5}, "key": "kitchen"}'`],
    ["Read it", `curl ${records}`],
  );
  if (server !== null) {
    found.push(["The same with the command line", `logboom write events${server} hello\nlogboom read events${server} --follow`]);
  }
  return found.map(([words, command]) => makeStep(words, command));
}

function makeStep(words, command) {
  return el("div", { class: "step" }, el("p", { text: words }), el("div", { class: "command" }, el("pre", { text: command }), copyButton(command)));
}

/** The option that names this node to `logboom`: none where that is where it looks by itself; null where nobody knows. */
function serverOf(config) {
  const [listen = ""] = config["listen.binary"]?.value ?? [];
  const [, host, port] = /^(.*):(\d+)$/.exec(listen) ?? [];
  if (!port || port === "0") return null;
  if (Number(port) === BINARY_PORT && HERE.includes(location.hostname)) return "";
  return ` --server ${ANYWHERE.includes(host) ? location.hostname : host}:${port}`;
}

function copyButton(command) {
  return el("button", { type: "button", class: "quiet", text: "Copy", onclick: () => copyText(command, "the command") });
}
