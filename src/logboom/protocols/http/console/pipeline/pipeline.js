// The pipeline: its jobs, how far those that run have come, what was made, and how far that is behind its log.

import { get, path, poll } from "../node/api.js";
import { nodeNow, ready, report } from "../node/shell.js";
import { copyText } from "../page/clipboard.js";
import { el, keyed, set, setText } from "../page/dom.js";
import { shownRuns } from "../page/runs.js";
import { ago, bytes, count, duration, instant, plural, span } from "../text/format.js";
import { visible, visibleRuns } from "../text/value.js";

const EVERY_MS = 2_000;
const STATES = {
  running: ["good", "Somebody runs it now."],
  silent: ["bad", "Nothing was heard of its runner for as long as its lease: whoever comes next takes it over."],
  idle: ["", "Its last run ended as it should."],
  failed: ["bad", "Its last run failed. What was made before that still counts."],
};
const FACTS = [
  ["lag", "Behind its log", "Records that came after what the result covers"],
  ["succeeded", "Last success", "When a run last ended without an error, with or without news"],
  ["records", "Records", "Of the result"],
  ["size", "Size", "Of the result"],
  ["covers", "Covers", "Up to which seqno of each log"],
  ["place", "Place", "Where the result is"],
];
const RUNS = [["began", "Began"], ["took", "Took"], ["runner", "Runner"], ["outcome", "Outcome"]];
const COVERED_SHOWN = 4;

export function open(main, route, signal) {
  const cards = el("div", { class: "stack" });
  const empty = nothing();
  main.append(el("h1", { text: "Pipeline" }), cards, empty);
  poll(async () => {
    const { jobs } = await get("/pipeline", {}, { signal });
    keyed(cards, jobs, ({ job }) => job, makeCard, fillCard);
    empty.hidden = jobs.length > 0;
    ready();
  }, EVERY_MS, signal, report);
  return { title: "Pipeline" };
}

function makeCard({ job }) {
  const parts = { state: el("span"), topics: el("span", { class: "quiet topics" }), error: el("p", { class: "trouble" }) };
  parts.page = el("a", { class: "button end", href: `/pipeline/report?job=${encodeURIComponent(job)}`, target: "_blank", rel: "noopener", text: "Open the report" });
  parts.doing = el("b");
  parts.far = el("span");
  parts.bar = el("i");
  parts.track = el("div", { class: "track" }, parts.bar);
  parts.meter = el("div", { class: "meter" }, el("div", { class: "words" }, parts.doing, parts.far), parts.track);
  parts.facts = Object.fromEntries(FACTS.map(([name]) => [name, el("dd")]));
  parts.copy = el("button", { type: "button", class: "link mono", onclick: () => copyText(card.item.result.place, "the place of the result") });
  parts.facts.place.append(parts.copy);
  const facts = FACTS.map(([name, label, meaning]) => el("div", { class: name, title: meaning }, el("dt", { text: label }), parts.facts[name]));
  parts.summary = el("summary");
  parts.runs = el("tbody");
  const heads = RUNS.map(([name, label]) => el("th", { scope: "col", class: name, text: label }));
  parts.details = el("details", {}, parts.summary,
    el("table", { class: "list runs", "aria-label": `Runs of ${job}` }, el("thead", {}, el("tr", {}, heads)), parts.runs));
  const name = el("h2", { class: "mono", title: visible(job) }, shownRuns(visibleRuns(job)));
  const card = el("section", { class: "card job", "aria-label": job },
    el("header", {}, name, parts.state, parts.topics, parts.page), parts.meter, parts.error, el("dl", { class: "facts" }, facts), parts.details);
  card.parts = parts;
  return card;
}

function fillCard(card, info) {
  const { parts } = card;
  card.item = info;
  const [kind, meaning] = STATES[info.state] ?? ["", null];
  setText(parts.state, info.state);
  set(parts.state, "class", `pill ${kind}`);
  set(parts.state, "title", meaning);
  fillTopics(parts.topics, info.topics);
  parts.page.hidden = info.result?.facts?.page === undefined;
  fillRunning(parts, info.running);
  showText(parts.error, info.running === null ? info.error : null);
  fillFacts(parts, info);
  parts.details.hidden = info.runs.length === 0;
  setText(parts.summary, `Last runs (${info.runs.length})`);
  keyed(parts.runs, info.runs, ({ run }) => run, makeRun);
}

function fillTopics(place, topics) {
  const said = topics.join();
  if (place.said === said) return;
  place.said = said;
  place.replaceChildren(...topics.flatMap((topic, at) => [at ? ", " : "", el("a", { href: `#${path("topics", topic)}`, text: topic })]));
}

function fillRunning({ meter, doing, far, track, bar }, running) {
  meter.hidden = running === null;
  if (running === null) return;
  const began = `since ${span((nodeNow() - running.since) / 1e6)}, by ${running.runner}`;
  showText(doing, running.doing || "runs");
  setText(far, running.total ? `${count(running.done)} of ${count(running.total)} · ${began}` : began);
  track.hidden = running.total === 0;
  bar.style.width = `${running.total ? Math.min(100, 100 * running.done / running.total) : 0}%`;
}

function fillFacts({ facts, copy }, { lag, succeeded, result }) {
  const now = nodeNow();
  fillFact(facts.lag, lag === null ? null : count(lag));
  fillFact(facts.succeeded, succeeded === null ? null : ago(succeeded, now), succeeded === null ? null : instant(succeeded));
  fillFact(facts.records, result === null ? null : count(result.records ?? 0));
  fillFact(facts.size, result === null ? null : bytes(result.bytes ?? 0), result === null ? null : `${count(result.bytes ?? 0)} bytes`);
  fillFact(facts.covers, coveredWords(result), coveredWords(result, Infinity));
  facts.place.parentElement.hidden = result === null;
  if (result === null) return;
  showText(copy, result.place);
  set(copy, "title", `Copy ${visible(result.place)}`);
}

/** One that there is nothing to say of is not there. */
function fillFact(place, text, title = null) {
  place.parentElement.hidden = text === null;
  setText(place, text);
  set(place, "title", title);
}

function coveredWords(result, most = COVERED_SHOWN) {
  if (result === null) return null;
  const logs = Object.entries(result.covers ?? {}).flatMap(([topic, { spans }]) =>
    Object.entries(spans).map(([partition, [, until]]) => `${topic}/${partition} to ${count(until)}`));
  if (logs.length === 0) return null;
  return logs.length > most ? `${logs.slice(0, most).join(", ")} and ${plural(logs.length - most, "more log", "more logs")}` : logs.join(", ");
}

function makeRun(run) {
  const outcome = el("td", { class: "outcome" });
  if (run.error) outcome.append(el("span", { class: "trouble" }, shownRuns(visibleRuns(run.error))));
  else outcome.append(el("span", { text: run.has_result ? "a result" : "nothing new" }), el("span", { class: "quiet", text: summaryWords(run.summary) }));
  return el("tr", {},
    el("td", { class: "began", title: instant(run.began), text: new Date(run.began / 1000).toLocaleString() }),
    el("td", { class: "took num", text: duration((run.ended - run.began) / 1e6) }),
    el("td", { class: "runner", text: visible(run.runner) }), outcome);
}

function summaryWords(summary = {}) {
  const words = Object.entries(summary).map(([name, value]) => `${name} ${typeof value === "number" ? count(value) : visible(String(value))}`);
  return words.length ? ` · ${words.join(", ")}` : "";
}

/** Text from elsewhere, with what cannot be seen made visible; null hides it. */
function showText(place, text) {
  place.hidden = text === null;
  if (place.said === text) return;
  place.said = text;
  place.replaceChildren(...shownRuns(visibleRuns(text ?? "")));
}

function nothing() {
  return el("div", { class: "card empty explained", hidden: true },
    el("h2", { text: "No jobs have run on this node" }),
    el("p", {}, "Checkpoints, archives, checks and reports are made by Spark, and are listed here with their runs and results:"),
    el("pre", { text: "logboom pipeline run report --directory results\nlogboom pipeline run archive --topic events --directory results" }),
    el("p", {}, "More of it is in ", el("code", { text: "docs/howto/pipeline.md" }), " and in the ", el("a", { href: "/docs", text: "API" }), "."));
}
