// A topic's settings as a form that is made of the API's own schema; below it what else can be done to a topic.

import { Problem, get, path, send } from "../node/api.js";
import { refusal } from "../node/permission.js";
import { checkSame } from "../node/same_topic.js";
import { node, ready } from "../node/shell.js";
import { explain, notice } from "../page/dialog.js";
import { el, set, setText } from "../page/dom.js";
import { inCode } from "../page/prose.js";
import { plural } from "../text/format.js";
import { encodeJson } from "../text/units.js";
import { deletion } from "./delete_topic.js";
import { Setting } from "./setting.js";
import { trimming } from "./trim.js";
import { writing } from "./writes.js";

let schemas = null;

export function open(place, topic, route, signal) {
  const frame = el("div", { class: "columns settings" });
  place.append(frame);
  const begin = async () => {
    try {
      schemas ??= (await get("/openapi.json", {}, { signal })).components.schemas;
    } catch (error) {
      return void (signal.aborted || failed(frame, error, begin));
    }
    if (signal.aborted) return;
    const form = new Form(topic, groupsOf(schemas), signal);
    const others = [writing, trimming, deletion].map((region) => region(topic, signal));
    frame.replaceChildren(warning(topic, signal), form.element, el("div", { class: "stack" }, others));
    ready();
  };
  begin();
  return { move: () => true };
}

/** Why nothing here can be changed, said once. */
function warning(topic, signal) {
  const line = el("p", { class: "topic-state" });
  const show = () => {
    setText(line, refusal(topic.name));
    line.hidden = line.textContent === "";
  };
  node.addEventListener("stats", show, { signal });
  show();
  return line;
}

function failed(frame, error, again) {
  frame.replaceChildren(el("div", { class: "card empty" },
    el("p", { text: `The settings cannot be shown: ${explain(error)}` }), el("button", { type: "button", text: "Try again", onclick: again })));
  ready();
}

/** [name, description, [[setting, schema]…]] for each group of the schema; one that stands alone has no name in its group,
 * and is none where the topic does not have it. */
function groupsOf(all) {
  const follow = (schema) => (schema.$ref ? all[schema.$ref.split("/").at(-1)] : schema);
  return Object.entries(all.Settings.properties).map(([name, schema]) => {
    const group = follow(schema);
    if (!group.properties) return [name, "", [["", { ...schema, anyOf: [{ enum: schema.enum }, { type: "null" }], default: null }]]];
    return [name, group.description ?? "", Object.entries(group.properties).map(([setting, each]) => [setting, { ...follow(each), ...each }])];
  });
}

function valueIn(settings, { group, name }) {
  return name ? settings[group][name] : settings[group] ?? null;
}

class Form {
  constructor(topic, groups, signal) {
    this.topic = topic;
    this.fields = [];
    this.saving = false;
    this.save = el("button", { type: "submit", class: "first", text: "Save" });
    this.undo = el("button", { type: "button", text: "Undo", onclick: () => this.takeBack() });
    this.summary = el("span", { class: "quiet", role: "status" });
    this.trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    const bar = el("div", { class: "bar" }, this.trouble, el("div", { class: "buttons" }, this.save, this.undo, this.summary));
    this.element = el("form", { class: "card settings-form", "aria-label": "Settings", novalidate: true, autocomplete: "off" },
      el("header", {}, el("h2", { text: "Settings" })), groups.map((group) => this.makeGroup(...group)), bar);
    this.element.addEventListener("submit", (event) => this.submit(event));
    topic.addEventListener("info", () => this.follow(), { signal });
    node.addEventListener("stats", () => this.permit(), { signal });
    this.follow();
    this.permit();
  }

  makeGroup(name, description, settings) {
    const fields = settings.map(([setting, schema]) => new Setting(name, setting, schema, () => this.show()));
    this.fields.push(...fields);
    return el("fieldset", {}, el("legend", { text: name }), description && el("p", { class: "quiet" }, inCode(description)),
      el("div", { class: "fields" }, fields.map(({ element }) => element)));
  }

  follow() {
    if (this.saving) return;
    const { settings } = this.topic.info();
    for (const field of this.fields) field.take(valueIn(settings, field));
    this.show();
  }

  permit() {
    const why = refusal(this.topic.name);
    for (const field of this.fields) {
      field.control.disabled = why !== "";
      field.show();
    }
    this.show();
  }

  show() {
    const touched = this.fields.filter((field) => field.isTouched);
    const changed = touched.filter((field) => field.isChanged);
    this.save.disabled = changed.length === 0 || this.saving;
    this.undo.disabled = touched.length === 0 || this.saving;
    const names = changed.slice(0, 3).map(({ key }) => key).join(", ");
    setText(this.summary, changed.length === 0 ? "No changes" : `${plural(changed.length, "change")}: ${names}${changed.length > 3 ? ", …" : ""}`);
  }

  takeBack() {
    this.trouble.hidden = true;
    for (const field of this.fields) {
      field.refused = "";
      field.undo();
    }
    this.show();
  }

  async submit(event) {
    event.preventDefault();
    this.trouble.hidden = true;
    const changed = this.fields.filter((field) => field.isChanged);
    const wrong = changed.find((field) => field.trouble());
    if (wrong) return wrong.control.focus();
    if (changed.length === 0 || this.saving) return;
    this.hold(true);
    try {
      await this.send(changed);
    } catch (error) {
      this.explain(error);
    }
    this.hold(false);
  }

  hold(saving) {
    this.saving = saving;
    set(this.element, "aria-busy", saving && "true");
    this.show();
  }

  async send(changed) {
    const settings = {};
    for (const field of changed) {
      if (field.name) (settings[field.group] ??= {})[field.name] = field.read();
      else settings[field.group] = field.read();
    }
    const body = encodeJson({ settings });
    await checkSame(this.topic.info());
    const info = await send("PATCH", path("topics", this.topic.name), body, { headers: { "content-type": "application/json" } });
    for (const field of changed) field.settle(valueIn(info.settings, field));
    this.saving = false;
    this.topic.learn(info);
    notice(`Saved: ${changed.map(({ key }) => key).join(", ")}`);
  }

  /** At the field it is about, where the node says which. */
  explain(error) {
    const parameter = error instanceof Problem ? (error.body.parameter ?? "").replace(/^settings\./, "") : "";
    const field = this.fields.find(({ key }) => parameter === key || parameter.startsWith(`${key}.`) || parameter.startsWith(`${key}[`));
    if (field) return field.refuse(error.message);
    setText(this.trouble, explain(error));
    this.trouble.hidden = false;
  }
}
