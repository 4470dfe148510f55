/* The setting: what is asked of which decoder, its checks, and its two texts: URL hash and command line. */
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const LESSON = {
  layers: 1n, hidden: 64n, heads: 1n, kvHeads: 1n, headDim: 64n, mlp: 0n, gated: true, output: false, vocab: 0n, window: 0n,
};
const MODEL_FIELDS = Object.keys(LESSON);
const ASKED = { prompt: 1n, new: 1n, at: 0n, hit: 0n, chunk: 1n, batch: 1n, turns: "1+1" };
const COUNTED = { kernel: "causal", loop: "forward", bytes: 2n };
const ALONE = "the lesson";
const LONGEST = 10n ** 12n;
const LEAST = { at: 0n, hit: 0n, mlp: 0n, vocab: 0n, window: 0n };
const MOST = { layers: 1000n, bytes: 16n, batch: 10n ** 9n };
const WORDS = { at: "edited position", hit: "prefix hit", new: "new tokens", kvHeads: "KV heads", headDim: "head dim",
  mlp: "MLP width", bytes: "bytes an element" };

/* The decoder of a preset, numbers as BigInt. */
function model(name) {
  if (name === ALONE || !Object.hasOwn(DATA.presets, name)) return { model: ALONE, ...LESSON };
  const facts = DATA.presets[name];
  return { model: name, ...Object.fromEntries(MODEL_FIELDS.map((f) => [f, ofType(LESSON[f], facts[f])])) };
}

const ofType = (like, value) => {
  if (typeof like === "bigint") return BigInt(value);
  return typeof like === "boolean" ? value === true || value === "true" : String(value);
};

/* Where a story begins with a model: the loop is the lesson's for one layer, as kvtally's is. */
function begin(story, name) {
  const decoder = model(name);
  const start = { ...decoder, ...ASKED, ...COUNTED, ...STORIES[story].start, story };
  if (story === "window" && decoder.window) start.window = decoder.window;
  return { ...start, loop: story === "generate" && decoder.layers === 1n ? "lesson" : "forward" };
}

/* What is wrong with a setting, in words; empty where nothing is. */
function problem(s) {
  for (const [name, value] of Object.entries(s)) {
    if (typeof value !== "bigint") continue;
    const [low, high] = [LEAST[name] ?? 1n, MOST[name] ?? LONGEST];
    if (value < low || value > high) return between(name, value, low, high);
  }
  if (s.heads % s.kvHeads) return `heads is ${s.heads} and KV heads is ${s.kvHeads}: expected a whole number of heads for each KV head`;
  const turns = /^\s*[1-9]\d{0,11}\s*\+\s*[1-9]\d{0,11}\s*(,\s*[1-9]\d{0,11}\s*\+\s*[1-9]\d{0,11}\s*){0,19}$/;
  if (!turns.test(s.turns)) return `turns is “${s.turns.slice(0, 40)}”: expected pairs like 8+6,3+6, at most 20`;
  for (const name of ["at", "hit"]) {
    if (STORIES[s.story].asks.includes(name) && s[name] >= s.prompt) return between(name, s[name], 0n, s.prompt - 1n);
  }
  return "";
}

const between = (name, value, low, high) =>
  `${WORDS[name] ?? name} is ${comma(value)}: expected ${low} to ${comma(high)}`;

/* The whole state in the address, so that a setting can be linked: only what differs from the start. */
function toHash(s, step) {
  const start = begin(s.story, s.model);
  const words = new URLSearchParams({ story: s.story });
  if (s.model !== ALONE) words.set("model", s.model);
  for (const [name, value] of Object.entries(s)) if (value !== start[name]) words.set(name, value);
  if (step !== null) words.set("step", step + 1);
  return `#${words}`;
}

function fromHash(text) {
  const words = new URLSearchParams(text.replace(/^#/, ""));
  const story = Object.hasOwn(STORIES, words.get("story")) ? words.get("story") : "generate";
  const s = begin(story, words.get("model") ?? DATA.model);
  for (const [name, value] of words) {
    if (!Object.hasOwn(s, name) || ["story", "model"].includes(name)) continue;
    if (typeof s[name] === "bigint" && !/^\d{1,13}$/.test(value)) continue;
    s[name] = ofType(s[name], value);
  }
  if (!["causal", "dense"].includes(s.kernel)) s.kernel = "causal";
  if (!["lesson", "forward"].includes(s.loop)) s.loop = "forward";
  const step = /^\d{1,4}$/.test(words.get("step") ?? "") ? Number(words.get("step")) - 1 : null;
  return problem(s) ? { s: begin(story, ALONE), step: null } : { s, step };
}

const OPTIONS = { layers: "--layers", hidden: "--hidden", heads: "--heads", kvHeads: "--kv-heads", headDim: "--head-dim",
  mlp: "--mlp", vocab: "--vocab", window: "--window" };

/* The command that prints the same numbers. A decoder that is no preset is told by its sizes. */
function commandWords(s) {
  const named = model(s.model);
  const preset = MODEL_FIELDS.every((field) => named[field] === s[field]);
  const words = ["kvtally", "count"];
  if (preset && s.model !== ALONE) words.push(quoted(s.model));
  if (!preset) words.push(...sizes(s));
  if (!STORIES[s.story].asks.includes("turns")) words.push("--prompt", s.prompt, "--new", s.new);
  words.push(...(STORIES[s.story].flags?.(s) ?? []).map((word) => String(word).replace(/\s/g, "")));
  if (STORIES[s.story].names === OFF_ON) words.push("--uncached", s.loop);
  if (s.kernel !== "causal") words.push("--kernel", s.kernel);
  if (s.batch !== 1n) words.push("--batch", s.batch);
  return words.map(String);
}

const commandLine = (s) => commandWords(s).join(" ");

function sizes(s) {
  const words = Object.entries(OPTIONS).flatMap(([field, option]) => (s[field] === LESSON[field] ? [] : [option, s[field]]));
  if (s.mlp && !s.gated) words.push("--no-gate");
  if (s.output) words.push("--o-proj");
  return words;
}

const quoted = (word) => (/^[\w./:@-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/* The answer to a setting: both tallies and the cache, as kvtally's records have them. */
function answer(s) {
  const [left, right] = lists(s).map((list) => count(s, list, { kernel: s.kernel, batch: s.batch }));
  return { left, right, held: s.batch * held(s, context(s)) };
}

function answerRecord(s) {
  const { left, right, held: elements } = answer(s);
  const [off, on] = STORIES[s.story].names;
  return {
    setting: { ...s }, command: commandLine(s),
    sides: [
      { name: off, tally: record(left) },
      { name: on, tally: record(right), cache: { elements, bytes_per_element: s.bytes, bytes: elements * s.bytes } },
    ],
  };
}
