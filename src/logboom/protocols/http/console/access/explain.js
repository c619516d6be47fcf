// Asks the node what it would decide, and by which rule.

import { get } from "../node/api.js";
import { explain, field } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { select } from "./lists.js";
import { KINDS, RIGHTS } from "./rules.js";

export function makeExplain() {
  const text = { autocomplete: "off", autocapitalize: "none", spellcheck: "false" };
  const user = el("input", { required: true, maxlength: 128, ...text });
  const [right, kind] = [select(RIGHTS), select(KINDS)];
  const [name, channel, tag] = [1, 2, 3].map(() => el("input", { maxlength: 1024, ...text }));
  const answer = el("p", { class: "answer", role: "status" });
  const form = el("form", { class: "questions" }, field("User", user), field("Right", right), field("Kind", kind), field("Name", name),
    field("Channel", channel), field("Tag", tag), el("button", { type: "submit", text: "Ask" }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const record = Object.entries({ channel: channel.value, tag: tag.value }).filter(([, text]) => text);
      const { allowed, reason } = await get("/access/explain", { user: user.value.trim(), right: right.value, kind: kind.value, name: name.value.trim(), ...Object.fromEntries(record) });
      set(answer, "class", `answer ${allowed ? "good" : "bad"}`);
      setText(answer, `${allowed ? "Allowed" : "Not allowed"}: ${reason}`);
    } catch (error) {
      set(answer, "class", "answer bad");
      setText(answer, explain(error));
    }
  });
  return el("section", { class: "card explain", "aria-label": "What would be decided", hidden: true },
    el("header", {}, el("h2", { text: "What would be decided" })), form, answer);
}
