# Plain `make` lists the targets. Everything happens in .venv/ inside the checkout.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
VLLM := .venv-vllm
PYTHON ?= python3
ROOMS := hwmodel simulator calibration validate draftcast
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-live test-pythons golden docs accuracy verify bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## .venv with draftcast and the tools; nothing to do the second time
	@$(BIN)/python -m compileall -q $(ROOMS) # start-up matters, and some environments never write bytecode themselves

# The build tool is installed first and used as it is: once everything is there, setting up again needs no network.
$(STAMP): setup.cfg pyproject.toml
	@python=; for candidate in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then echo "make: Python 3.11 or later is needed; name one: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	if [ ! -x $(BIN)/python ]; then "$$python" -m venv $(VENV); fi
	$(PIP) install 'setuptools>=70.1'
	$(PIP) install --no-build-isolation -e '.[dev]'
	@touch $@

demo: setup ## the main question on the reference case
	$(BIN)/draftcast choose examples/kimi-k2.5-8x-rtx-pro-6000.toml

check: setup ## lint, format, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/test_four_names.py

test: check ## the checks and all tests that need no server
	$(BIN)/pytest

test-live: setup ## the loop on a real vLLM server on the CPU: installs it the first time, ten minutes
	@$(BIN)/python tests/live/install.py $(VLLM)
	@if [ -e $(VLLM)/.installed ]; then $(BIN)/pytest tests/live; fi

test-pythons: setup ## the wheel installed and used on every Python from 3.11 on that is found; needs the package index
	$(BIN)/pytest tests/pythons -p no:cacheprovider

golden: setup ## record the outputs of whole runs anew; look at the difference before you commit it
	DRAFTCAST_GOLDEN=write $(BIN)/pytest tests -k golden

verify: setup ## minutes: statistics against theory, simulation against the closed form and against measured tables
	@failed=0; for script in $(filter-out verification/checks.py verification/plots.py,$(wildcard verification/*.py)); do \
	  echo "== $$script"; OPENBLAS_NUM_THREADS=1 $(BIN)/python $$script || failed=1; done; exit $$failed

docs: setup ## the generated parts of docs/: command help, tables, outputs
	$(BIN)/python docs/make_cli.py
	$(BIN)/python docs/generate_tables.py

accuracy: setup ## docs/accuracy.md from a run of the backtest; about ten minutes
	OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/make_accuracy.py

bench: setup ## start-up, a grid cell, a simulated step, a replay, memory, the measuring client, sweeps, the what-if page
	$(BIN)/python benchmarks/startup.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/grid.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/serving.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/client.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scale.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/serve.py

clean: ## caches and build leftovers; keeps .venv
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist *.egg-info out
	find $(ROOMS) tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
