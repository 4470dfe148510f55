/* The page: what is on it follows from the setting and the step. */
"use strict";

const at = (id) => document.getElementById(id);
const page = { s: null, step: null, view: null, answer: null, timer: null, exact: false };
const FORM = at("setting");

/* A new setting: everything is computed and drawn again. */
function show(s, step = null) {
  page.s = s;
  const small = drawn(s);
  const made = steps(small.setting);
  const groups = STORIES[s.story].groups(small.setting).map(([n, label]) => [Number(n), label]);
  const rowsMade = made.flatMap((m) => [m.left, m.right]).filter(Boolean);
  const mostQueries = Math.max(1, ...rowsMade.flatMap((row) => row.dots));
  const columns = Math.max(...rowsMade.map((row) => row.cells.length));
  page.view = { steps: made, columns, groups, mostQueries, lanes: small.lanes, scale: small.scale, small: small.setting };
  page.answer = answer(s);
  page.step = step === null ? null : Math.min(Math.max(step, 0), made.length - 1);
  at("step").max = made.length;
  showStory();
  fillForm();
  showNumbers();
  showFigures();
  at("command").replaceChildren(...commandWords(s).flatMap((word) => [isolated(word), " "]));
  showStep();
}

/* A word that cannot turn the words around it. */
function isolated(word) {
  const made = document.createElement("bdi");
  made.textContent = word;
  return made;
}

function showStory() {
  const { s, view } = page;
  const story = STORIES[s.story];
  at("story-title").textContent = story.title;
  at("story-lead").textContent = story.lead;
  for (const button of at("stories").children) button.setAttribute("aria-pressed", String(button.value === s.story));
  ["left", "right"].forEach((side, i) => {
    at(`${side}-name`).textContent = at(`${side}-head`).textContent = story.names[i];
  });
  at("scale").hidden = view.scale === 1n && Number(s.batch) === view.lanes;
  at("scale").textContent = [
    view.scale > 1n ? `The picture is drawn at a scale of 1 to ${comma(view.scale)}; all numbers but those of its steps are of the whole.` : "",
    Number(s.batch) > view.lanes ? `Drawn: ${view.lanes} of ${comma(s.batch)} requests.` : "",
  ].join(" ");
}

/* The window, the scheme or the medium changed. */
function repaint() {
  legend();
  showStep();
}

const currentStep = () => page.step ?? page.view.steps.length - 1;

/* A new step of the same setting. */
function showStep() {
  const { view, s } = page;
  const now = currentStep();
  for (const side of ["left", "right"]) {
    draw(at(side), view, side, now);
    const sums = view.steps.slice(0, now + 1).map((step) => tallied(step[side], view.lanes));
    const [computed, dots] = ["computed", "dots"].map((name) => sums.reduce((a, b) => a + b[name], 0));
    const whole = view.scale > 1n;
    at(`${side}-states`).textContent = whole ? short(page.answer[side].states) : comma(computed);
    at(`${side}-states`).classList.toggle("again", sums.some((sum) => sum.again) && side === "left");
    at(`${side}-dots`).textContent = `${plural(sums.at(-1).dots, "comparison")} in this step${whole ? ", as drawn" : `, ${comma(dots)} so far`}`;
    at(side).setAttribute("aria-label", `${at(`${side}-name`).textContent}: step ${now + 1}, ${phrase(view.steps[now][side], view.lanes)}`);
  }
  at("step").value = now + 1;
  at("step").setAttribute("aria-valuetext", `step ${now + 1} of ${view.steps.length}`);
  at("sentence").textContent = sentence(view, s, now);
  history.replaceState(null, "", toHash(s, page.step));
}

const plural = (n, word) => `${comma(n)} ${word}${n === 1 ? "" : "s"}`;

function phrase(row, lanes) {
  const { computed, again, read } = tallied(row, lanes);
  if (!computed) return "computes nothing";
  const repeated = again === computed && again > 1 ? ", all of them again" : again ? `, ${again === 1 && computed === 1 ? "again" : `${comma(again)} of them again`}` : "";
  return `computes ${plural(computed, "token")}${repeated}${read ? `, reads ${comma(read)} from the cache` : ""}`;
}

/* The current step in one plain sentence. */
function sentence(view, s, now) {
  const { left, right } = view.steps[now];
  const head = `${view.scale > 1n ? "As drawn, step" : "Step"} ${now + 1} of ${view.steps.length}`;
  const [off, on] = STORIES[s.story].names;
  if (right.phase === "edit") return `${head}: the token at position ${view.small.at} changes; keys and values after it no longer hold.`;
  const [a, b] = [tallied(left, view.lanes).dots, tallied(right, view.lanes).dots];
  const both = a === b ? `Each makes ${plural(a, "comparison")}.` : `They make ${comma(a)} and ${plural(b, "comparison")}.`;
  const text = `${head}, ${right.phase}. ${off}: ${phrase(left, view.lanes)}. ${on}: ${phrase(right, view.lanes)}. `;
  return left ? text + both : `${text}No token comes out yet.`;
}

/* A number to read at a glance, or every digit of it. */
function short(n) {
  const room = matchMedia("(max-width: 480px)").matches ? 10n ** 8n : 10n ** 10n;
  if (page.exact || n < room) return comma(n);
  const digits = String(n).length - 1;
  const lead = Number(n / 10n ** BigInt(digits - 3)) / 1000;
  const raised = [...String(digits)].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]).join("");
  return `${lead.toFixed(2)}×10${raised}`;
}

function ratio(a, b) {
  if (a === b) return a ? "equal" : "";
  if (!a || !b) return "";
  const [more, less] = a > b ? [a, b] : [b, a];
  const times = Number((more * 1000n) / less) / 1000;
  const text = times < 10 ? times.toFixed(2) : times < 1000 ? times.toFixed(1) : comma(Math.round(times));
  return a > b ? `${text}×` : `1/${text}`;
}

function showNumbers() {
  const { left, right, held: elements } = page.answer;
  const body = at("numbers").tBodies[0];
  const cached = STORIES[page.s.story].names === OFF_ON ? 0n : elements;
  const term = (name) => [name, added(left.macs, (r) => r.what === name), added(right.macs, (r) => r.what === name)];
  const phase = (name) => [name, added(left.macs, (r) => r.phase === name), added(right.macs, (r) => r.phase === name)];
  const moved = (label, ...names) => [label, ...[left, right].map((t) => added(t.kv, (r) => names.includes(r.what)))];
  const lines = [
    ["token states", left.states, right.states], ["comparisons", added(left.comparisons), added(right.comparisons)],
    "Multiplications by term", ...TERMS.map(term), "Multiplications in all", ...PHASES.map(phase),
    ["total", added(left.macs), added(right.macs)],
    "Cache elements", moved("written", "k_write", "v_write"), moved("read", "k_read", "v_read"), ["held at the end", cached, elements],
    ["bytes held", cached * page.s.bytes, elements * page.s.bytes],
  ];
  body.replaceChildren(...lines.filter((line) => typeof line === "string" || line[1] || line[2]).map(tableRow));
  const loop = STORIES[page.s.story].names === OFF_ON ? `Cache off runs the “${page.s.loop}” loop: ${LOOPS[page.s.loop]} ` : "";
  at("loop-name").textContent = `${loop}Comparisons are ${page.s.kernel}: ${KERNELS[page.s.kernel]}`;
}

const KERNELS = { causal: "the pairs the mask allows.", dense: "the rectangle a kernel multiplies." };
const LOOPS = {
  lesson: "keys and values of every token are rebuilt, and only the newest query attends in the last layer.",
  forward: "as frameworks run it, every token attends again in every layer.",
};

function tableRow(line) {
  const row = document.createElement("tr");
  const cell = (tag, text) => {
    const made = row.appendChild(document.createElement(tag));
    made.textContent = text;
    return made;
  };
  if (typeof line === "string") {
    const head = cell("th", line);
    head.colSpan = 4;
    head.scope = "rowgroup";
    row.className = "group";
    return row;
  }
  const [label, a, b] = line;
  cell("th", label).scope = "row";
  for (const n of [a, b]) cell("td", n ? short(n) : "0").title = comma(n);
  cell("td", ratio(a, b));
  if (label === "total" || label === "token states") row.className = "strong";
  return row;
}

function showFigures() {
  const { s } = page;
  const { one, model: matrices, cards } = memory(s);
  const fits = cards.map(({ gib, fit }) => (fit < 0n ? `the weights do not fit in ${gib} GiB` : `${short(fit)} in ${gib} GiB`));
  at("memory").replaceChildren(memoryFigure(s));
  at("memory-text").textContent = `One conversation of ${short(context(s))} tokens holds ${size(one)} of keys and values; the weights take ${size(matrices)}. Beside them fit: ${fits.join(", ")}.`;
  const { prefill, own, every } = roofs(s);
  const few = (x) => (x < 10 ? x.toFixed(2) : comma(Math.round(x)));
  const grouped = every.length ? ` With a KV head for every head (open circles): ${every.map((p) => few(p.at)).join(", ")}.` : "";
  at("roofline").replaceChildren(rooflineFigure(s));
  at("roofline-text").textContent = `FLOP for each byte: prefill (triangle) ${few(prefill)}; a decode step at batch ${own.map((p) => `${p.batch}: ${few(p.at)}`).join(", ")} (circles).${grouped} The ridge of an ${CARD.name} is at ${Math.round(RIDGE)}.`;
}

/* The form says what the setting says, and shows the fields of the story. */
function fillForm() {
  const asks = STORIES[page.s.story].asks;
  for (const field of FORM.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") field.checked = page.s[field.name];
    else if (String(page.s[field.name]) !== field.value) field.value = page.s[field.name];
    field.removeAttribute("aria-invalid");
    if (field.name in ASKED && field.name !== "batch") field.closest("label").hidden = !asks.includes(field.name);
  }
  at("loop-field").hidden = STORIES[page.s.story].names !== OFF_ON;
  at("problem").textContent = "";
}

function readForm(changed) {
  if (changed.name === "model") return show(begin(page.s.story, changed.value));
  const s = { ...page.s };
  const like = s[changed.name];
  const text = changed.type === "checkbox" ? changed.checked : changed.value.trim();
  const wrong = typeof like === "bigint" && !/^\d{1,13}$/.test(text) ? `${WORDS[changed.name] ?? changed.name} is “${text}”: expected a whole number` : "";
  if (!wrong) s[changed.name] = ofType(like, text);
  const found = wrong || problem(s);
  at("problem").textContent = found;
  if (found) return changed.setAttribute("aria-invalid", "true");
  return show(s, null);
}
