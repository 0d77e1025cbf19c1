# Everything here sets itself up: a virtual environment in .venv, made anew when pyproject.toml changes.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PYTHON ?= $(shell command -v python3.11 || command -v python3)

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow check format paper clean

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## Plan the three workloads of the SlackSwap paper and compare with its figures
	$(BIN)/slackswap reproduce

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest

test-slow: $(READY) ## Run the long searches: hundreds of random graphs against enumeration
	$(BIN)/python -m pytest -m slow

check: $(READY) ## Check format, lint, types and imports, then run the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

paper: $(READY) ## Make instances/paper anew: the three workloads and their best-known plans
	$(BIN)/python -m benchmarks.paper

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
