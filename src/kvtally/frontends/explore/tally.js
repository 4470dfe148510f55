/* The count, written from the definitions, in exact BigInt sums.

   Every fact of one pass is a polynomial in the number of the pass, between the points where the
   window begins to bite. So a row of passes is summed from a few of its passes by Newton's forward
   differences, and a million passes cost no more than ten. */
"use strict";

const TERMS = ["q_proj", "k_proj", "v_proj", "qk", "pv", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"];
const CELLS = ["k_write", "v_write", "k_read", "v_read"];
const PHASES = ["prefill", "decode"];

const least = (a, b) => (a < b ? a : b);

/* f(0) + f(1) + … + f(n-1), where f is a polynomial of degree 3 at most between the breaks. */
function sum(f, n, breaks = []) {
  const inside = breaks.filter((b) => b > 0n && b < n).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const edges = [0n, ...inside, n];
  let whole = 0n;
  for (let i = 1; i < edges.length; i += 1) whole += piece((k) => f(edges[i - 1] + k), edges[i] - edges[i - 1]);
  return whole;
}

/* The same for one polynomial: C(n,1) f + C(n,2) Δf + C(n,3) Δ²f + C(n,4) Δ³f, all taken at 0. */
function piece(f, n) {
  let values = [0n, 1n, 2n, 3n].slice(0, Number(least(n, 4n))).map(f);
  if (n < 4n) return values.reduce((a, b) => a + b, 0n);
  let whole = 0n;
  let choose = 1n;
  for (let order = 1n; values.length; order += 1n) {
    choose = (choose * (n - order + 1n)) / order;
    whole += choose * values[0];
    values = values.slice(1).map((value, i) => value - values[i]);
  }
  return whole;
}

/* Pass number k of a row: kept passes go on where the one before ended, the others start over. */
const single = (p, k) => (p.keep ? { ...p, past: p.past + k * p.new } : { ...p, new: p.new + k });

const attends = (p) => (p.attending === null ? p.new : p.attending);
const firstRow = (p) => p.past + p.new - attends(p);

/* Keys that the query at a position may see: itself and all before it, or the last `window`. */
const seen = (position, window) => (window ? least(position + 1n, window) : position + 1n);

/* Past tokens that the first of the attending queries may see. */
const reach = (past, window) => (window ? least(past, window - 1n) : past);

function comparisons(p, window, kernel) {
  const first = firstRow(p);
  if (kernel === "dense") return attends(p) * (reach(first, window) + attends(p));
  return sum((k) => seen(first + k, window), attends(p), [window - first]);
}

/* Where in a row of passes a position crosses the window: the breaks of every sum over the row. */
function crossings(p, window) {
  if (!window) return [];
  const step = p.keep ? p.new : 1n;
  const ceil = (a) => (a <= 0n ? 0n : (a + step - 1n) / step);
  return [p.past, firstRow(p), p.past + p.new].flatMap((at) => [ceil(window - 1n - at), ceil(window - at)]);
}

const overRow = (p, window, fact) => sum((k) => fact(single(p, k)), p.times, crossings(p, window));

/* Multiplications that one token costs in one layer, by term. */
function perToken(d) {
  const inner = d.hidden * d.mlp;
  return {
    q_proj: d.hidden * d.heads * d.headDim,
    k_proj: d.hidden * d.kvHeads * d.headDim,
    v_proj: d.hidden * d.kvHeads * d.headDim,
    o_proj: d.output ? d.heads * d.headDim * d.hidden : 0n,
    gate_proj: d.gated ? inner : 0n,
    up_proj: inner,
    down_proj: inner,
  };
}

const AFTER_ATTENTION = new Set(["o_proj", "gate_proj", "up_proj", "down_proj"]);

/* What one layer costs over a row of passes. */
function layerWork(d, p, kernel) {
  const tokens = overRow(p, d.window, (one) => one.new);
  const rows = overRow(p, d.window, attends);
  const pairs = overRow(p, d.window, (one) => comparisons(one, d.window, kernel));
  const read = overRow(p, d.window, (one) => reach(one.past, d.window));
  const macs = { qk: pairs * d.heads * d.headDim, pv: pairs * d.heads * d.headDim };
  for (const [term, each] of Object.entries(perToken(d))) macs[term] = each * (AFTER_ATTENTION.has(term) ? rows : tokens);
  const wide = d.kvHeads * d.headDim;
  const written = p.keep ? tokens : 0n;
  const kv = { k_write: wide * written, v_write: wide * written, k_read: wide * read, v_read: wide * read };
  return { macs, kv, pairs };
}

const allAttend = (p) => ({ ...p, attending: null });

/* The tally of a list of passes, `batch` sequences alike: rows of (phase, layer, term) as kvtally's. */
function count(d, passes, { kernel = "causal", batch = 1n } = {}) {
  const table = new Map();
  const add = (name, phase, layer, what, n) => {
    const key = JSON.stringify([name, phase, layer, what]);
    table.set(key, (table.get(key) ?? 0n) + n * batch);
  };
  let states = 0n;
  for (const p of passes) {
    const [last, other] = [layerWork(d, p, kernel), layerWork(d, allAttend(p), kernel)];
    for (let layer = 0; layer < Number(d.layers); layer += 1) {
      const work = layer === Number(d.layers) - 1 ? last : other;
      for (const [term, n] of Object.entries(work.macs)) add("macs", p.phase, layer, term, n);
      for (const [cell, n] of Object.entries(work.kv)) add("kv", p.phase, layer, cell, n);
      add("comparisons", p.phase, layer, "pairs", work.pairs);
    }
    add("macs", p.phase, null, "lm_head", p.times * p.logits * d.hidden * d.vocab);
    states += batch * overRow(p, d.window, (one) => one.new);
  }
  return tally(table, states, kernel);
}

function tally(table, states, kernel) {
  const rows = { macs: [], kv: [], comparisons: [] };
  for (const [key, n] of table) {
    const [name, phase, layer, what] = JSON.parse(key);
    if (n) rows[name].push({ phase, layer, what, n });
  }
  const place = ({ phase, layer, what }) => [
    PHASES.indexOf(phase), layer ?? Infinity, TERMS.indexOf(what), CELLS.indexOf(what)];
  const order = (a, b) => place(a).map((x, i) => (x === place(b)[i] ? 0 : x - place(b)[i])).find((x) => x) ?? 0;
  for (const list of Object.values(rows)) list.sort(order);
  return { states, ...rows, kernel };
}

const added = (rows, fits = () => true) => rows.filter(fits).reduce((whole, row) => whole + row.n, 0n);

/* The record as kvtally prints it with --format json. */
function record(t) {
  return {
    states: t.states,
    comparisons: t.comparisons.map(({ phase, layer, n }) => ({ phase, layer, pairs: n })),
    macs: t.macs.map(({ phase, layer, what, n }) => ({ phase, layer, term: what, macs: n })),
    kv: t.kv.map(({ phase, layer, what, n }) => ({ phase, layer, cell: what, elements: n })),
    total_macs: added(t.macs),
    kernel: t.kernel,
    road: "page",
  };
}

/* JSON with integers of any length. */
function json(value) {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return `[${value.map(json).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${json(item)}`).join(", ")}}`;
}

/* Elements that the cache of one sequence holds once `context` tokens are there. */
const held = (d, context) => 2n * d.layers * d.kvHeads * d.headDim * (d.window ? least(context, d.window) : context);

/* Entries of all weight matrices: a token is multiplied once by each; and the embedding table. */
const weights = (d) => d.layers * Object.values(perToken(d)).reduce((a, b) => a + b, 0n) + 2n * d.hidden * d.vocab;
