# kvtally: `make demo` and `make test` need Python 3.11 or newer, git, make and a package registry.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint zoo browser docs bench coverage mutants bare ci clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

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
	$(BIN)/python -m pytest -n 2 --junitxml=.cache/tests.xml

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
	$(BIN)/python -m pytest -m browser tests/browser --junitxml=.cache/browser.xml

zoo: .venv/test  ## one tiny model of every architecture of transformers, counted by two roads
	$(BIN)/kvtally zoo -n 2 --format md --out docs/zoo.md

.venv/docs: .venv/test .venv/browser
	$(PIP) --group docs
	@touch $@

docs: .venv/docs  ## real outputs, fields and screenshots into README and docs, and the site into site/
	$(BIN)/python tests/docs/blocks.py README.md docs/*.md
	$(BIN)/python tests/docs/tree.py
	$(BIN)/python tests/docs/cli_reference.py
	$(BIN)/python tests/docs/python_api.py
	$(BIN)/python tests/docs/json_fields.py
	! ls .cache/*.xml >/dev/null 2>&1 || $(BIN)/python tests/docs/roads.py .cache/*.xml
	$(BIN)/python docs/screenshots.py
	$(BIN)/zensical build --strict
	$(BIN)/kvtally explore --no-open --out site/explore.html

.venv/bench: .venv/test
	$(PIP) --group bench
	-$(PIP) libcachesim  # GPL: a peer to measure against where it installs, in no list of ours
	@touch $@

bench: .venv/bench .venv/browser  ## speed as ratios, side by side in one run; never a gate
	cd bench && for file in $(filter-out measure.py,$(notdir $(wildcard bench/*.py))); do \
	  echo $$file && ../$(BIN)/python $$file || exit 1; done

coverage: .venv/test  ## the lines of src that `make test` runs, subprocesses included
	$(PIP) --group coverage
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

mutants: .venv/test  ## a random sample of mutants of core and pure, against their tests
	$(PIP) --group mutants
	$(BIN)/python tests/mutants.py 400

bare:  ## the wheel in an empty environment, base dependencies only
	bash tests/bare.sh

ci: lint test browser bare  ## what continuous integration runs

clean:  ## remove what the targets made
	rm -rf .venv .cache site dist build
