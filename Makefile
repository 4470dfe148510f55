# kvtally: `make demo` and `make test` need Python 3.11 or newer, git, make and a package registry.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint zoo browser docs bench bare ci clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/base: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --editable .
	@touch $@

.venv/test: .venv/base
	$(PIP) --group test --group engines --group lint --editable '.[hf]'
	$(BIN)/python tests/fetch_smollm2.py
	@touch $@

demo: .venv/base  ## the main job: the lesson's numbers, then a real model's
	$(BIN)/kvtally count
	@echo
	$(BIN)/kvtally count llama-3.1-8b --prompt 2048 --new 512

test: .venv/test  ## every test that needs no browser
	$(BIN)/python -m pytest -n 2

lint: .venv/test  ## style, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.venv/browser: .venv/base
	command -v chromium >/dev/null || (apt-get update && apt-get install -y --no-install-recommends chromium)
	$(PIP) --group browser
	@touch $@

browser: .venv/browser  ## the page and the reports in a real Chromium
	$(BIN)/python -m pytest -m browser tests/browser

zoo: .venv/test  ## one tiny model of every architecture of transformers, counted by two roads
	$(BIN)/kvtally zoo -n 2 --format md --out docs/zoo.md

docs: .venv/browser  ## real outputs and screenshots into README and docs, the page as the site's front
	$(BIN)/python tests/docs/blocks.py README.md docs/describe.md
	$(BIN)/python tests/docs/tree.py
	$(BIN)/python docs/screenshots.py
	mkdir -p site && $(BIN)/kvtally explore --no-open --out site/index.html

bench: .venv/test  ## speed as ratios, side by side in one run; never a gate
	cd bench && for what in count config size; do ../$(BIN)/python $$what.py || exit 1; done

bare:  ## the wheel in an empty environment, base dependencies only
	bash tests/bare.sh

ci: lint test browser bare  ## what continuous integration runs

clean:  ## remove what the targets made
	rm -rf .venv .cache dist build
