// What can be done to the node as a whole: stop and take writes, and make a replica independent.

import { send } from "../node/api.js";
import { nodeNow, refreshNode, report } from "../node/shell.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { ago, instant, plural } from "../text/format.js";

/** The button that stops writes, or takes them again; none for a replica, and none where only a restart helps. */
export class WritesButton {
  constructor() {
    this.refused = false;
    this.element = el("button", { type: "button", class: "writes", onclick: () => (this.refused ? takeWrites() : stopWrites()) });
  }

  show(stats) {
    this.refused = stats.refused !== null;
    setText(this.element, this.refused ? "Take writes again" : "Stop taking writes");
    this.element.hidden = stats.replica !== null || stats.failure !== null;
  }
}

async function stopWrites() {
  const reason = el("input", { maxlength: 200, autocomplete: "off", autofocus: true, placeholder: "maintenance until 18:00" });
  const done = await openDialog({
    title: "Stop taking writes",
    body: [
      el("p", { text: "Every write to this node is refused, until an operator allows writes again or the node restarts. Reads continue." }),
      field("Reason", reason, "Writers are told. May be empty."),
    ],
    actions: [{ label: "Stop taking writes", kind: "danger first", run: () => send("POST", "/refuse", { reason: reason.value }).then(() => true) }],
  });
  if (done) await tell("The node takes no writes.");
}

async function takeWrites() {
  try {
    await send("POST", "/accept");
    await tell("The node takes writes again.");
  } catch (error) {
    report(error);
  }
}

async function promote({ source, lag_records: lag }) {
  const done = await openDialog({
    title: "Promote",
    body: [
      el("p", {}, "This node copies ", el("code", { text: source }), ". Promoted, it copies no more and takes writes itself."),
      el("p", { text: "That cannot be undone. Make sure that no client writes to the source any more: new records there will not be copied." }),
      lag > 0 && el("p", { class: "trouble", text: `${plural(lag, "record")} of the source ${lag === 1 ? "is" : "are"} not here yet.` }),
    ],
    actions: [{ label: "Promote", kind: "danger first", run: () => send("POST", "/promote").then(() => true) }],
  });
  if (done) await tell("The node is a replica no more: it takes writes.");
}

async function tell(text) {
  notice(text);
  await refreshNode();
}

/** The region "Replica": where it copies from, how far behind it is. Hidden for a node that copies nobody. */
export class ReplicaCard {
  constructor() {
    this.replica = null;
    this.dot = el("i", { class: "dot", "aria-hidden": "true" });
    this.cause = el("p", { class: "cause" });
    this.fix = el("p", { class: "fix" });
    this.element = el("section", { class: "card health replica", "aria-label": "Replica", hidden: true },
      el("div", { class: "line" }, this.dot, el("div", { class: "said" }, this.cause, this.fix),
        el("button", { type: "button", text: "Promote", onclick: () => promote(this.replica) })));
  }

  show({ replica }) {
    this.element.hidden = replica === null;
    if (replica === null) return;
    this.replica = replica;
    const behind = replica.lag_records ? `${plural(replica.lag_records, "record")} behind` : "nothing missing";
    const heard = replica.heard === null ? "not heard of yet" : `heard of ${ago(replica.heard, nodeNow()).replace("now", "just now")}`;
    set(this.dot, "class", `dot ${replica.connected && !replica.error ? "good" : "warn"}`);
    setText(this.cause, `A replica of ${replica.source}, ${replica.connected ? behind : `not connected, ${behind} when it was`}`);
    setText(this.fix, replica.error ?? `It takes no writes of its own · source ${heard}`);
    set(this.fix, "title", replica.heard === null ? null : `source heard of at ${instant(replica.heard)}`);
  }
}
