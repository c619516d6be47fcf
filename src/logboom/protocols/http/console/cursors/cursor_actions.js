// Moving and deleting a cursor, each after a dialog has asked.

import { path, send } from "../node/api.js";
import { checkSame } from "../node/same_topic.js";
import { field, notice, openDialog } from "../page/dialog.js";
import { el } from "../page/dom.js";
import { count } from "../text/format.js";
import { NUMBER, parseAmount } from "../text/units.js";

/** What the node keeps the places of groups under. */
const OF_GROUP = "@";

export class CursorActions {
  /** `done()` is called when something has changed. */
  constructor(topic, done) {
    this.topic = topic;
    this.done = done;
  }

  /** Why it cannot be moved from here; "" where it can. */
  unreachable({ cursor }) {
    if (cursor.startsWith(OF_GROUP)) return `This is the place of group ${cursor.slice(1)}: see Groups.`;
    return [".", ".."].includes(cursor) ? "A browser takes this name for a directory: use logboom cursor." : "";
  }

  address(cursor) {
    return path("topics", this.topic.name, "cursors", cursor);
  }

  async move({ cursor, partition, seqno }) {
    const info = this.topic.info();
    const log = info.partitions[partition];
    if (!log) return notice(`${cursor} stands in partition ${partition}, which ${info.name} has no more.`, "trouble");
    const input = el("input", { type: "text", inputmode: "numeric", required: true, autocomplete: "off", value: String(seqno) });
    const put = (label, value) => el("button", { type: "button", text: label, onclick: () => set(input, value) });
    const help = `Of the record that is read next: ${count(log.first)} is the first there is, ${count(log.committed)} the end.`;
    const moved = await openDialog({
      title: `Move cursor ${cursor}`,
      body: [
        el("p", { class: "quiet", text: this.place(partition, seqno) }),
        field("Seqno", input, help),
        el("div", { class: "buttons" }, put("To the first", log.first), put("To the end", log.committed)),
      ],
      actions: [{ label: "Move", run: () => this.put(info, cursor, partition, input.value, seqno) }],
    });
    if (moved === null) return;
    notice(`${cursor} stands at seqno ${count(moved.seqno)} of partition ${moved.partition}.`);
    this.done();
  }

  /** `from` is where it stood when the dialog was opened: back from there is what was asked for. */
  async put(info, cursor, partition, text, from) {
    const seqno = Number(parseAmount(text, NUMBER));
    if (!Number.isSafeInteger(seqno)) throw new Error("that is past any record there can be");
    await checkSame(info);
    const place = seqno < from ? { seqno, force: true } : { seqno };
    return send("PUT", this.address(cursor), place, { query: { partition } });
  }

  place(partition, seqno) {
    const where = this.topic.info().partitions.length > 1 ? ` of partition ${partition}` : "";
    return `It stands at seqno ${count(seqno)}${where}. A reader that uses it goes on from the new place; before this one, it reads records again.`;
  }

  async remove({ cursor }) {
    const info = this.topic.info();
    const drop = async () => {
      await checkSame(info);
      return send("DELETE", this.address(cursor));
    };
    const all = info.partitions.length > 1 ? ", in every partition of the topic" : "";
    const deleted = await openDialog({
      title: `Delete cursor ${cursor}`,
      body: [el("p", { text: `The cursor goes${all}; the records stay. A reader that uses it begins anew, with the first record there is.` })],
      actions: [{ label: "Delete", kind: "first danger", run: drop }],
    });
    if (deleted === null) return;
    notice(`Deleted: cursor ${cursor}`);
    this.done();
  }
}

function set(input, value) {
  input.value = String(value);
  input.focus();
}
