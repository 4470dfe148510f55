/* The picture: rows are steps, columns are tokens, and the strip below is the current row with its
   comparisons as dots. */
"use strict";

const NAMES = ["nothing", "new", "again", "read", "dropped", "held"];
const MARGIN = { left: 30, narrow: 3, right: 3, top: 22, gap: 12, strip: 13, dots: 22 };
const TALLEST = 420;

/* Colours come from the stylesheet, so that light and dark are one place. */
function inks() {
  const css = getComputedStyle(document.documentElement);
  const ink = (name) => css.getPropertyValue(`--${name}`).trim();
  return { new: ink("new"), again: ink("again"), againBack: ink("again-back"), read: ink("read"), dropped: ink("dropped"),
    paper: ink("card"), ink: ink("ink"), muted: ink("muted"), line: ink("line") };
}

/* A fill for each state: solid, hatched, pale, crossed. No two differ by colour alone. */
function fills(context, ink, ratio) {
  const key = JSON.stringify([ink, ratio]);
  if (fills.key !== key) Object.assign(fills, { key, made: madeFills(context, ink, ratio) });
  return fills.made;
}

function madeFills(context, ink, ratio) {
  const hatch = (back, stroke, size, width, lines) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(size * ratio);
    const pen = tile.getContext("2d");
    pen.scale(tile.width / size, tile.width / size);
    pen.fillStyle = back;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = stroke;
    pen.lineWidth = width;
    pen.beginPath();
    for (const [a, b, c, d] of lines) {
      pen.moveTo(a, b);
      pen.lineTo(c, d);
    }
    pen.stroke();
    const pattern = context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(size / tile.width)); // tiles are whole pixels of the screen
    return pattern;
  };
  const up = [[-1, 6, 6, -1], [-1, 1, 1, -1], [4, 6, 6, 4]];
  const cross = [[1.5, 1.5, 4.5, 4.5], [1.5, 4.5, 4.5, 1.5]];
  return [
    null, ink.new, hatch(ink.againBack, ink.again, 5, 1.9, up), ink.read, hatch(ink.paper, ink.dropped, 6, 1, cross), ink.read,
  ];
}

/* Where everything goes, in CSS pixels; edges of cells fall on whole pixels of the screen. */
function geometry(view, width, ratio) {
  const between = view.lanes > 1 ? Math.min(14, width / 20) : 0;
  const left = width < 240 ? MARGIN.narrow : MARGIN.left;
  const inner = width - left - MARGIN.right - between * (view.lanes - 1);
  const cell = inner / (view.columns * view.lanes);
  const count = view.steps.length;
  const height = Math.min(Math.max(count * cell, 240), Math.max(inner, 160), TALLEST);
  const snap = (at) => Math.round(at * ratio) / ratio;
  const x = (lane, column) => snap(left + lane * (view.columns * cell + between) + column * cell);
  const y = (row) => snap(MARGIN.top + (row * height) / count);
  const strip = snap(MARGIN.top + height + MARGIN.gap);
  return { x, y, left, cell, row: height / count, strip, whole: strip + MARGIN.strip + MARGIN.dots, width };
}

/* Draws one panel up to the step `at`, later steps faintly; returns the cells drawn, by state. */
function draw(canvas, view, side, at) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(canvas.parentElement.clientWidth, 120);
  const place = geometry(view, width, ratio);
  const context = canvas.getContext("2d", { alpha: false });
  fit(canvas, width, place.whole, ratio);
  const ink = inks();
  const brush = { context, place, ink, fill: fills(context, ink, ratio), count: NAMES.map(() => 0) };
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = ink.paper;
  context.fillRect(0, 0, width, place.whole);
  view.steps.forEach((step, i) => {
    context.globalAlpha = i <= at ? 1 : 0.13;
    cells(brush, view, step[side], [place.y(i), place.y(i + 1)], i <= at);
  });
  context.globalAlpha = 1;
  ruled(brush, view);
  margins(brush, view, at);
  current(brush, view, view.steps[at][side], at);
  return brush.count;
}

function fit(canvas, width, height, ratio) {
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width === wide && canvas.height === high) return;
  canvas.width = wide;
  canvas.height = high;
  canvas.style.height = `${height}px`;
}

/* One row: equal neighbours are one rectangle, the ruling parts them. */
function cells({ context, place, fill, count }, view, row, [top, bottom], counted) {
  if (!row) return;
  const { cells: states } = row;
  for (let from = 0; from < states.length;) {
    let to = from;
    while (to < states.length && states[to] === states[from]) to += 1;
    context.fillStyle = fill[states[from]];
    for (let k = 0; k < view.lanes; k += 1) {
      const [left, right] = [place.x(k, from), place.x(k, to)];
      context.fillRect(left, top, right - left, bottom - top);
    }
    if (counted) count[states[from]] += (to - from) * view.lanes;
    from = to;
  }
}

/* Thin lines of paper between rows and columns; none where the cells are too small for them. */
function ruled(brush, view) {
  const { context, place, ink } = brush;
  const [rows, bottom] = [view.steps.length, place.y(view.steps.length)];
  columns(brush, view, [MARGIN.top, bottom]);
  if (place.row <= 6) return;
  context.strokeStyle = ink.paper;
  context.lineWidth = place.row > 9 ? 2 : 1;
  context.beginPath();
  for (let r = 0; r <= rows; r += 1) {
    context.moveTo(place.left, place.y(r));
    context.lineTo(place.width - MARGIN.right, place.y(r));
  }
  context.stroke();
}

function columns({ context, place, ink }, view, [top, bottom]) {
  if (place.cell <= 6) return;
  context.strokeStyle = ink.paper;
  context.lineWidth = place.cell > 9 ? 2 : 1;
  context.beginPath();
  for (let k = 0; k < view.lanes; k += 1) {
    for (let c = 0; c <= view.columns; c += 1) {
      context.moveTo(place.x(k, c), top);
      context.lineTo(place.x(k, c), bottom);
    }
  }
  context.stroke();
}

/* What the columns are, above; the numbers of the steps, at the left. */
function margins({ context, place, ink }, view, at) {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "alphabetic";
  context.lineWidth = 1;
  for (let k = 0; k < view.lanes; k += 1) {
    let from = 0;
    for (const [length, label] of view.groups) {
      if (length) bracket(context, ink, place.x(k, from), length * place.cell, label);
      from += length;
    }
  }
  if (place.left === MARGIN.left) stepNumbers(context, place, ink, view, at);
}

function stepNumbers(context, place, ink, view, at) {
  context.textAlign = "right";
  context.fillStyle = ink.muted;
  context.fillText("step", place.left - 7, MARGIN.top - 10);
  const every = [1, 2, 5, 10, 20, 25, 50].find((n) => n * place.row >= 24) ?? 50;
  view.steps.forEach((_, i) => {
    const far = Math.abs(i - at) * place.row >= 13;
    if (i !== at && !(far && ((i + 1) % every === 0 || i === 0))) return;
    context.fillStyle = i === at ? ink.ink : ink.muted;
    context.font = `${i === at ? "600 " : ""}11px system-ui, sans-serif`;
    context.fillText(String(i + 1), place.left - 7, (place.y(i) + place.y(i + 1)) / 2 + 4);
  });
}

function bracket(context, ink, x, width, label) {
  context.strokeStyle = ink.muted;
  context.fillStyle = ink.muted;
  context.globalAlpha = 0.6;
  context.beginPath();
  context.moveTo(x + 1.5, MARGIN.top - 5.5);
  context.lineTo(x + width - 1.5, MARGIN.top - 5.5);
  context.stroke();
  context.globalAlpha = 1;
  context.textAlign = "left";
  if (context.measureText(label).width < width + 2) context.fillText(label, x + 1, MARGIN.top - 10);
}

/* The current row is framed, and drawn once more in the strip. */
function current(brush, view, row, at) {
  const { context, place, ink } = brush;
  const [top, bottom, end] = [place.y(at), place.y(at + 1), place.x(view.lanes - 1, view.columns)];
  context.strokeStyle = ink.ink;
  context.lineWidth = 1.5;
  context.strokeRect(place.left - 1.5, top - 1, end - place.left + 3, bottom - top + 2);
  if (!row) return;
  const band = [place.strip, place.strip + MARGIN.strip];
  cells(brush, view, row, band, false);
  columns(brush, view, band);
  comparisonDots(brush, view, row);
}

/* Under each column of the strip a dot for each comparison with its key; several queries of the same
   pass make one larger dot, its area as their number while there is room. */
function comparisonDots({ context, place, ink }, view, row) {
  const most = Math.max(Math.min(place.cell * 0.46, MARGIN.dots * 0.4), 1.1);
  const one = Math.min(Math.max(most / Math.sqrt(view.mostQueries), 1.1), most, 2.6);
  const y = place.strip + MARGIN.strip + MARGIN.dots * 0.5;
  context.fillStyle = ink.ink;
  context.beginPath();
  for (let k = 0; k < view.lanes; k += 1) {
    row.dots.forEach((n, c) => {
      if (!n) return;
      const [x, radius] = [place.x(k, c + 0.5), Math.min(one * Math.sqrt(n), most)];
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 2 * Math.PI);
    });
  }
  context.fill();
}

/* The legend shows the very fills of the picture. */
function legend() {
  const ratio = window.devicePixelRatio || 1;
  for (const key of document.querySelectorAll("canvas.key")) {
    const context = key.getContext("2d");
    fit(key, 16, 16, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = fills(context, inks(), ratio)[NAMES.indexOf(key.dataset.state)];
    context.fillRect(0, 0, 16, 16);
  }
}
