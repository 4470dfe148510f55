/* What the visitor may press: stories, play, scrub, copy. */
"use strict";

function go(step) {
  page.step = Math.min(Math.max(step, 0), page.view.steps.length - 1);
  showStep();
}

function pause() {
  clearTimeout(page.timer);
  page.timer = null;
  at("play").textContent = "Play";
  at("sentence").setAttribute("aria-live", "polite");
}

/* A story plays in about six seconds; with reduced motion, no faster than two steps a second. */
function play() {
  if (page.timer !== null) return pause();
  if (currentStep() === page.view.steps.length - 1) go(0);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const pace = calm ? 500 : Math.min(Math.max(6000 / page.view.steps.length, 50), 420);
  at("play").textContent = "Pause";
  at("sentence").setAttribute("aria-live", "off");
  const next = () => {
    go(page.step + 1);
    if (page.step >= page.view.steps.length - 1) pause();
    else page.timer = setTimeout(next, pace);
  };
  page.timer = setTimeout(next, pace);
  return undefined;
}

async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    at("copied").textContent = `${said} copied.`;
  } catch {
    at("by-hand").hidden = false;
    at("by-hand").value = text;
    at("by-hand").select();
    at("copied").textContent = `The browser does not let a page copy here: ${said.toLowerCase()} below, press Ctrl+C.`;
  }
}

function storyButtons() {
  for (const [name, { title }] of Object.entries(STORIES)) {
    const button = document.createElement("button");
    button.type = "button";
    button.value = name;
    button.textContent = title;
    button.addEventListener("click", () => {
      pause();
      show(begin(name, page.s.model));
    });
    at("stories").append(button);
  }
}

function modelChoices() {
  for (const name of [ALONE, ...Object.keys(DATA.presets)]) {
    const shown = name.length > 60 ? `${name.slice(0, 60)}…` : name;
    at("model").append(new Option(shown, name));
  }
}

function listen() {
  const press = (id, act) => at(id).addEventListener("click", act);
  press("play", play);
  press("first", () => (pause(), go(0)));
  press("back", () => (pause(), go(currentStep() - 1)));
  press("next", () => (pause(), go(currentStep() + 1)));
  press("last", () => (pause(), go(Infinity)));
  press("copy-json", () => copy(json(answerRecord(page.s)), "Numbers"));
  press("copy-command", () => copy(commandLine(page.s), "Command"));
  press("copy-link", () => copy(location.href, "Link"));
  at("step").addEventListener("input", (event) => (pause(), go(Number(event.target.value) - 1)));
  at("exact").addEventListener("change", (event) => {
    page.exact = event.target.checked;
    showNumbers();
  });
  FORM.addEventListener("input", (event) => event.target.name && (pause(), readForm(event.target)));
  FORM.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", fromAddress);
  addEventListener("resize", repaint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  matchMedia("print").addEventListener("change", repaint);
}

function fromAddress() {
  const { s, step } = fromHash(location.hash);
  show(s, step);
}

storyButtons();
modelChoices();
listen();
fromAddress();
legend();
