/* The stories: each is two lists of passes, and one way to lay any list of passes out as cells. */
"use strict";

const pass = (fields) => ({
  past: 0n, phase: "prefill", logits: 1n, attending: null, keep: true, times: 1n, ...fields,
});

function uncached(prompt, n, loop) {
  const attending = loop === "lesson" ? 1n : null;
  const first = pass({ new: prompt, attending, keep: false });
  const rest = pass({ new: prompt + 1n, phase: "decode", attending, keep: false, times: n - 1n });
  return n > 1n ? [first, rest] : [first];
}

function cached(prompt, n, hit = 0n) {
  const first = pass({ new: prompt - hit, past: hit });
  return n > 1n ? [first, pass({ new: 1n, past: prompt, phase: "decode", times: n - 1n })] : [first];
}

function chunked(prompt, n, chunk) {
  const full = (prompt - 1n) / chunk;
  const before = full ? [pass({ new: chunk, logits: 0n, times: full })] : [];
  return [...before, ...cached(prompt, n, full * chunk)];
}

function conversation(turns, carried) {
  let length = 0n;
  return turns.flatMap(([user, answer]) => {
    const hit = carried && length ? length - 1n : 0n;
    const passes = cached(length + user, answer, hit);
    length += user + answer;
    return passes;
  });
}

const OFF_ON = ["Cache off", "Cache on"];
const offOn = (s) => [uncached(s.prompt, s.new, s.loop), cached(s.prompt, s.new)];
const promptAnswer = (s) => [[s.prompt, "prompt"], [s.new - 1n, "answer"]];

/* `asks` are the fields a story has; `lists` the two lists of passes; `groups` what the columns are;
   `known` the columns computed before the story begins; `flags` what the terminal must be told. */
const STORIES = {
  generate: {
    title: "Generate tokens",
    lead: "Without a cache every step computes every token again: a triangle. With it, each step computes one token: a line.",
    names: OFF_ON, asks: ["new"], start: { prompt: 1n, new: 100n },
    lists: offOn, groups: (s) => [[s.new, "tokens"]],
  },
  prompt: {
    title: "Prompt and answer",
    lead: "The prefill computes the whole prompt in one pass, with or without a cache. What differs is every step after it.",
    names: OFF_ON, asks: ["prompt", "new"], start: { prompt: 16n, new: 24n },
    lists: offOn, groups: promptAnswer,
  },
  edit: {
    title: "Edit one token",
    lead: "Change a token of a cached prompt: what stands before it stays, everything from there on is computed again.",
    names: ["Cache thrown away", "Cache kept up to the edit"],
    asks: ["prompt", "new", "at"], start: { prompt: 24n, new: 12n, at: 14n },
    lists: (s) => [cached(s.prompt, s.new), cached(s.prompt, s.new, s.at)],
    groups: promptAnswer, known: (s) => [s.prompt, s.at], edited: true,
    flags: (s) => ["--edit-at", s.at],
  },
  chunk: {
    title: "Chunked prefill",
    lead: "A long prompt is computed in pieces so that others need not wait. With a cache the pieces cost what the whole costs.",
    names: ["One prefill", "In chunks"], asks: ["prompt", "new", "chunk"], start: { prompt: 24n, new: 10n, chunk: 5n },
    lists: (s) => [cached(s.prompt, s.new), chunked(s.prompt, s.new, s.chunk)],
    groups: promptAnswer, flags: (s) => ["--chunk", s.chunk],
  },
  window: {
    title: "Sliding window",
    lead: "Each query sees only the last few tokens, so the cache stops growing: older keys and values are dropped.",
    names: OFF_ON, asks: ["prompt", "new"], start: { prompt: 4n, new: 32n, window: 8n },
    lists: offOn, groups: promptAnswer,
  },
  turns: {
    title: "A conversation",
    lead: "Each turn, the whole conversation is resent and computed again, or the cache is carried over from the turn before.",
    names: ["Resent", "Carried"], asks: ["turns"], start: { turns: "8+6,3+6,3+6" },
    lists: (s) => [conversation(pairsOf(s.turns), false), conversation(pairsOf(s.turns), true)],
    groups: (s) => pairsOf(s.turns).flatMap(([user, answer]) => [[user, "user"], [answer, "answer"]]),
    flags: (s) => ["--turns", s.turns],
  },
  prefix: {
    title: "A prefix hit",
    lead: "Another request began with the same tokens, a system prompt say. Their keys and values are there already.",
    names: ["Prefix miss", "Prefix hit"], asks: ["prompt", "new", "hit"], start: { prompt: 28n, new: 10n, hit: 20n },
    lists: (s) => [cached(s.prompt, s.new), cached(s.prompt, s.new, s.hit)],
    groups: (s) => [[s.hit, "shared prefix"], [s.prompt - s.hit, "own"], [s.new - 1n, "answer"]],
    known: (s) => [s.hit], flags: (s) => ["--edit-at", s.hit],
  },
  batch: {
    title: "Two in a batch",
    lead: "Two requests share every pass over the weights, but no key and no value: each has its own triangle, its own line.",
    names: OFF_ON, asks: ["prompt", "new"], start: { prompt: 4n, new: 14n, batch: 2n },
    lists: offOn, groups: promptAnswer,
  },
};

/* "8+6,3+6" as pairs (tokens from the user, tokens generated). */
const pairsOf = (turns) => turns.split(",").map((turn) => turn.split("+").map((n) => BigInt(n.trim())));

const longest = (s) => BigInt(Math.max(...lists(s).flat().map((p) => Number(lastEnd(p)))));
const lastEnd = (p) => p.past + p.new + (p.keep ? p.new : 1n) * (p.times - 1n);
const lists = (s) => STORIES[s.story].lists(s);

/* Tokens that the cache holds at the end of the story. */
const context = (s) => lastEnd(lists(s)[1].at(-1));

const NOTHING = 0, NEW = 1, AGAIN = 2, READ = 3, DROPPED = 4, HELD = 5;

/* One row of cells for each single pass: what happens to each column, and how many queries look at it. */
function rows(passes, window, kernel, known) {
  const before = new Set(known);
  const grid = [];
  for (const row of passes) {
    for (let k = 0n; k < row.times; k += 1n) grid.push(laidOut(single(row, k), window, kernel, before));
  }
  return grid;
}

function laidOut(p, window, kernel, before) {
  const [past, end, first] = [Number(p.past), Number(p.past + p.new), Number(firstRow(p))];
  const limit = window ? Number(window) : Infinity;
  const oldest = past - Math.min(past, limit - 1);
  const cells = [], dots = [];
  for (let c = 0; c < end; c += 1) {
    if (c < past) cells.push(c < oldest ? DROPPED : READ);
    else cells.push(before.has(c) ? AGAIN : NEW);
    if (c >= past) before.add(c);
    const sees = Math.min(end - 1, c + limit - 1) - Math.max(first, c) + 1;
    const inRectangle = c >= first - Math.min(first, limit - 1);
    dots.push(kernel === "dense" ? (inRectangle ? end - first : 0) : Math.max(0, sees));
  }
  return { cells, dots, phase: p.phase, logits: Number(p.logits) };
}

/* The story as steps: both panels' rows side by side. A pass that makes no token is a step of the
   right panel alone; an edit is a step in which nothing is computed. */
function steps(s) {
  const story = STORIES[s.story];
  const [to, except] = story.known ? story.known(s).map(Number) : [0];
  const known = Array.from({ length: to }, (_, c) => c).filter((c) => c !== except);
  const [left, right] = lists(s).map((list) => rows(list, s.window, s.kernel, known));
  const made = [];
  if (story.edited) {
    const cells = Array.from({ length: to }, (_, c) => (c < except ? HELD : DROPPED));
    const lost = { dots: [], phase: "edit", logits: 0 };
    made.push({ left: { ...lost, cells: cells.map(() => DROPPED) }, right: { ...lost, cells } });
  }
  for (const row of right) made.push(row.logits ? { left: left.shift(), right: row } : { right: row });
  return made;
}

/* How many cells of a row are in each state, and its dots. */
function tallied(row, lanes = 1) {
  const seen = [0, 0, 0, 0, 0, 0];
  for (const cell of row?.cells ?? []) seen[cell] += lanes;
  const dots = lanes * (row?.dots ?? []).reduce((a, b) => a + b, 0);
  return { fresh: seen[NEW], again: seen[AGAIN], computed: seen[NEW] + seen[AGAIN], read: seen[READ],
    dropped: seen[DROPPED], dots };
}

const MOST_COLUMNS = 100, MOST_LANES = 4;

/* A setting small enough to draw: the same story, every length divided by `scale`. */
function drawn(s) {
  const lanes = Math.min(Number(s.batch), MOST_LANES);
  const room = BigInt(Math.floor(MOST_COLUMNS / lanes));
  const scale = (longest(s) + room - 1n) / room;
  const less = (n) => (n + scale - 1n) / scale;
  const prompt = less(s.prompt);
  const small = {
    ...s, prompt, new: less(s.new), window: less(s.window), chunk: less(s.chunk),
    at: least(s.at / scale, prompt - 1n), hit: least(s.hit / scale, prompt - 1n),
    turns: pairsOf(s.turns).map((turn) => turn.map(less).join("+")).join(","),
  };
  return { setting: scale > 1n ? small : s, scale, lanes };
}
