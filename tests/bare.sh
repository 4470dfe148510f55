#!/usr/bin/env bash
# The wheel, built and installed into an empty environment, answers with base dependencies only.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --quiet --disable-pip-version-check wheel --no-deps --wheel-dir "$work" .
"$work/venv/bin/python" -m pip --quiet --disable-pip-version-check install "$work"/kvtally-*.whl
cd "$work"
venv/bin/kvtally --version
venv/bin/kvtally count | grep -q '5,050'
venv/bin/kvtally count llama-3.1-8b --prompt 16 --new 4 --format json | grep -q '"kernel": "causal"'
venv/bin/kvtally models | grep -q 'gpt2'
venv/bin/kvtally size llama-3.1-8b --memory 80GiB --format json | grep -q '"bytes_held": 4294967296'
venv/bin/kvtally lab start lesson > started && grep -q 'kvtally lab check' started
venv/bin/kvtally explore --no-open --out page.html > written && [ -s page.html ]
venv/bin/python -c 'import importlib.resources as r, kvtally; assert (r.files(kvtally) / "py.typed").is_file()'
code=0
venv/bin/kvtally count gpt2 --prompt 4 --new 2 --against traced 2> missing || code=$?
[ "$code" = 3 ] && grep -q "pip install 'kvtally\[hf\]'" missing
ls -l kvtally-*.whl | awk '{ print "bare: ok, wheel of " $5 " bytes" }'
