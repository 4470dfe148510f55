# kvtally: `make demo` and `make test` need Python 3.11 or newer, git, make and a package registry.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test lint bench bare ci clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/base: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --editable .
	@touch $@

.venv/test: .venv/base
	$(PIP) --group test --group lint --editable '.[hf]'
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

bench: .venv/test  ## speed as ratios, side by side in one run; never a gate
	cd bench && ../$(BIN)/python count.py

bare:  ## the wheel in an empty environment, base dependencies only
	bash tests/bare.sh

ci: lint test bare  ## what continuous integration runs

clean:  ## remove what the targets made
	rm -rf .venv .cache dist build
