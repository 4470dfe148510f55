/* The two small figures: what the cache weighs in memory, and what limits a pass. */
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WEIGHT_BYTES = 2; // fp16 and bf16
const GIB = 2 ** 30;
const CARDS = [24, 80];

/* 1,234,567 of an integer of any length. */
const comma = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/* Bytes in the largest unit that keeps them at 1 or more. */
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let [value, unit] = [Number(bytes), 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit ? value.toPrecision(value < 100 ? 3 : 4) : value} ${units[unit]}`;
}

/* How much of each card the weights and the caches of such conversations take, and how many fit. */
function memory(s) {
  const one = held(s, context(s)) * s.bytes;
  const model = weights(s) * BigInt(WEIGHT_BYTES);
  return {
    one, model,
    cards: CARDS.map((gib) => {
      const room = BigInt(gib) * 2n ** 30n;
      const left = room - model;
      return { gib, share: Number(model) / Number(room), each: Number(one) / Number(room), fit: left < 0n ? -1n : left / one };
    }),
  };
}

/* One block for each conversation; where they are too thin to tell apart, one block for all. */
function sequences(x, y, wide, fit) {
  const block = (from, width) => svg("rect", { x: from + 0.5, y, width: width - 1, height: 15, class: "sequence" });
  if (wide < 3) return [block(x, Math.max(wide * fit, 2))];
  return Array.from({ length: fit }, (_, k) => block(x + k * wide, wide));
}

function memoryFigure(s) {
  const { cards } = memory(s);
  const root = svg("svg", { viewBox: "0 0 400 96", "aria-hidden": "true", class: "figure" });
  cards.forEach(({ gib, share, each, fit }, i) => {
    const y = 18 + i * 50;
    const text = fit < 0n ? "the weights alone do not fit" : `${comma(fit)} fit`;
    root.append(
      svg("text", { x: 0, y: y - 6, class: "label" }, `${gib} GiB`),
      svg("text", { x: 400, y: y - 6, class: "strong", "text-anchor": "end" }, text),
      svg("rect", { x: 0.5, y: y + 0.5, width: 399, height: 20, rx: 3, class: "frame" }),
      svg("rect", { x: 1, y: y + 1, width: Math.min(share, 1) * 398, height: 19, rx: 2.5, class: "weights" }),
    );
    if (fit > 0n) root.append(...sequences(1 + share * 398, y + 3, each * 398, Number(fit)));
  });
  return root;
}

/* A card's peak and bandwidth: H100 SXM, dense bf16, as NVIDIA's data sheet has them. */
const CARD = { name: "H100 SXM", flops: 989e12, bytes: 3.35e12 };
const RIDGE = CARD.flops / CARD.bytes;

/* Floating-point operations for each byte moved, of one pass over `batch` sequences. */
function intensity(d, p, batch) {
  const { macs, kv } = count(d, [p], { batch });
  const matrices = d.layers * Object.values(perToken(d)).reduce((a, b) => a + b, 0n) + d.hidden * d.vocab;
  return (2 * Number(added(macs))) / (Number(matrices) * WEIGHT_BYTES + Number(added(kv) * d.bytes));
}

const BATCHES = [1n, 16n, 256n];

/* The points: the prefill, and a decode step by batch, with the KV heads as they are and with one a head. */
function roofs(s) {
  const prefill = lists(s)[1].find((p) => p.past === 0n) ?? lists(s)[1][0];
  const step = pass({ new: 1n, past: context(s), phase: "decode" });
  const own = BATCHES.map((batch) => ({ batch, at: intensity(s, step, batch) }));
  const every = BATCHES.map((batch) => ({ batch, at: intensity({ ...s, kvHeads: s.heads }, step, batch) }));
  return { prefill: intensity(s, { ...prefill, times: 1n }, 1n), own, every: s.kvHeads === s.heads ? [] : every };
}

const ROOF = { left: 14, right: 388, top: 18, bottom: 150, from: -1, to: 4 };
const roofX = (at) => {
  const share = (Math.log10(Math.max(at, 0.1)) - ROOF.from) / (ROOF.to - ROOF.from);
  return ROOF.left + Math.min(share, 1) * (ROOF.right - ROOF.left);
};
const roofY = (at) => {
  const low = Math.log10(RIDGE) + 1; // decades from the left edge to the ridge
  const down = Math.max(0, Math.log10(RIDGE / Math.max(at, 0.1)));
  return ROOF.top + (down / low) * (ROOF.bottom - ROOF.top - 8);
};

function rooflineFigure(s) {
  const { prefill, own, every } = roofs(s);
  const root = svg("svg", { viewBox: "0 0 400 190", "aria-hidden": "true", class: "figure" });
  const corner = roofX(RIDGE);
  root.append(
    svg("path", { d: `M${corner} ${ROOF.top}V${ROOF.bottom}`, class: "ridge" }),
    svg("path", { d: `M${ROOF.left} ${roofY(0.1)}L${corner} ${ROOF.top}H${ROOF.right}`, class: "roof" }),
    svg("path", { d: `M${ROOF.left} ${ROOF.bottom}H${ROOF.right}`, class: "axis" }),
    svg("text", { x: corner - 6, y: ROOF.bottom - 6, class: "label", "text-anchor": "end" }, "memory is the limit"),
    svg("text", { x: corner + 6, y: ROOF.bottom - 6, class: "label" }, "arithmetic is"),
    svg("text", { x: ROOF.left, y: 184, class: "label" }, "FLOP for each byte moved"),
  );
  for (const n of [1, 10, 100, 1000]) {
    root.append(svg("text", { x: roofX(n), y: 167, class: "label", "text-anchor": "middle" }, comma(n)));
  }
  for (const { at } of every) root.append(svg("circle", { cx: roofX(at), cy: roofY(at), r: 4.5, class: "every" }));
  let free = 0; // labels that would run into the one before are left to the text
  for (const { batch, at } of own) {
    const x = roofX(at);
    root.append(svg("circle", { cx: x, cy: roofY(at), r: 5, class: "decode" }));
    if (x >= free) root.append(svg("text", { x: x + 8, y: roofY(at) + 12, class: "label" }, `batch ${batch}`));
    free = Math.max(free, x + 60);
  }
  const [x, y] = [roofX(prefill), roofY(prefill)];
  root.append(svg("path", { d: `M${x - 6} ${y + 5}L${x} ${y - 6}L${x + 6} ${y + 5}Z`, class: "prefill" }));
  return root;
}
