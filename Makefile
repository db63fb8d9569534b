# Everything that a fresh machine needs: Python 3.11+ and make. `make dev` runs the system, `make check` and `make test` check it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
SITE_VENV := .mcpfleet/site
# Unit tests wait for nothing, so as many run side by side as there are cores; an idle worker takes from the others.
CORES := -n auto --dist worksteal
# Contract tests wait for half of their time, so twice as many run as there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(16, 2 * (os.cpu_count() or 1)))')
BESIDE := -n $(WORKERS) --dist worksteal
# Files of tests that start processes run side by side, three for two cores, in the order that they are named in, the
# longest first: each file shares what it starts.
HALF_MORE ?= $(shell $(PYTHON) -c 'import os; print(min(16, (3 * (os.cpu_count() or 1) + 1) // 2))')
FILES := -n $(HALF_MORE) --dist loadfile --no-loadscope-reorder
# Each run of tests writes down which rules it showed; the last step of `test` reads all records of the present tree.
RECORDS := .mcpfleet/rules
RECORD = --record-rules $(RECORDS)/$@.json
SHOWN = $(RUN)/python -m tests.lint.shown_rules $(patsubst %,$(RECORDS)/%.json,unit vectors contract processes)
TARGET ?= examples/library.py
PORT ?= 8000
SITE ?= build/site
PIP := -m pip --disable-pip-version-check
# FastMCP's releases that tests and benchmarks speak with, each in an environment of its own.
ENVIRONMENTS := tests/fleet/fastmcp/requirements.lock tests/benchmarks/fastmcp/requirements.lock \
  tests/fleet/servers/requirements.lock
# Tests start hundreds of processes: each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev install environments prepared check test lint types unit vectors rules mutants fuzz contract processes fleet deploy chaos conformance system system-packages site lock clean

help:
	@echo "make dev    run the whole system with $(TARGET) on port $(PORT)"
	@echo "make check  lint, types, layers and the unit tests, for the minute between two edits"
	@echo "make test   lint, types, layers and every test"
	@echo "make site   the documentation as a site, in $(SITE)"
	@echo "make system tests with nginx, HAProxy and Caddy, which must be installed"

$(RUN)/python:
	@echo "1 of 3: a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Only what `dev` needs, so that a first call is a minute away.
$(VENV)/.run: requirements.lock | $(RUN)/python
	@echo "2 of 3: the packages that a fleet needs; the first time takes about a minute"
	@$(RUN)/python $(PIP) install --require-hashes -r requirements.lock
	@echo "3 of 3: mcpfleet itself, from this folder"
	@$(RUN)/python $(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.test: requirements-test.lock $(VENV)/.run
	@echo "the packages that only checks and tests need; the first time takes about a minute"
	@$(RUN)/python $(PIP) install --require-hashes -r requirements-test.lock
	@$(RUN)/python -m compileall -q -j 0 services shared
	@touch $@

# A site's generator is in an environment of its own: nothing that runs needs it.
$(SITE_VENV)/.site: requirements-site.lock | $(RUN)/python
	@echo "the packages that build the site, in $(SITE_VENV)"
	@$(RUN)/python -m venv --without-pip $(SITE_VENV)
	@$(RUN)/python $(PIP) --python $(SITE_VENV)/bin/python install --quiet --no-compile --require-hashes -r requirements-site.lock
	@touch $@

dev: $(VENV)/.run
	$(RUN)/mcpfleet dev $(TARGET) --port $(PORT)

install: $(VENV)/.test

# The environments beside our own; tests make them where they are not there yet.
environments: $(SITE_VENV)/.site | $(RUN)/python
	$(RUN)/python -m tests.kit.venv $(ENVIRONMENTS)

# An installation keeps one core busy, so two run side by side.
prepared:
	@$(MAKE) --no-print-directory --jobs 2 install environments

check: lint types unit

test: prepared lint types unit vectors contract processes
	$(SHOWN) --whole

lint: $(VENV)/.test
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/lint-imports
	$(RUN)/python -m tests.lint.removed_names

types: $(VENV)/.test
	$(RUN)/mypy --num-workers auto services shared examples tests

unit: $(VENV)/.test
	$(RUN)/pytest $(CORES) $(RECORD) tests/unit

# The answers of an edge, as data over real sockets, and a fuzzer's requests.
vectors: $(VENV)/.test
	$(RUN)/pytest $(FILES) $(RECORD) tests/vectors tests/fuzz

# The rules that the runs of this tree showed so far. Nothing is judged unless all have run.
rules: $(VENV)/.test
	$(SHOWN)

# Whether the tests of some rules fail where the rule is broken: tests/mutants/README.md. It takes a quarter of an hour.
RULES ?=
mutants: $(VENV)/.test
	$(RUN)/python -m tests.mutants.run $(RULES)

SECONDS ?= 600
fuzz: $(VENV)/.test
	$(RUN)/python -m tests.fuzz.run --seconds $(SECONDS)

contract: $(VENV)/.test
	$(RUN)/pytest $(BESIDE) $(RECORD) tests/contract

# All that starts processes, in one run, whose end no core waits for: `fleet`, `deploy`, `chaos` and `conformance` are its parts.
processes: $(VENV)/.test $(SITE_VENV)/.site
	$(RUN)/pytest $(FILES) $(RECORD) tests/deploy tests/conformance tests/chaos tests/fleet

fleet: $(VENV)/.test
	$(RUN)/pytest $(FILES) tests/fleet

# The image's steps, the manifests, what they start, and what dashboards and alerts look at.
deploy: $(VENV)/.test $(SITE_VENV)/.site
	$(RUN)/pytest $(FILES) tests/deploy

chaos: $(VENV)/.test
	$(RUN)/pytest $(FILES) tests/chaos

conformance: $(VENV)/.test
	$(RUN)/pytest $(FILES) tests/conformance

# With programs that the system has, from Debian's packages: see SYSTEM_PACKAGES. `make test` needs none of them.
SYSTEM_PACKAGES := nginx-light haproxy caddy

system: $(VENV)/.test
	$(RUN)/pytest $(FILES) tests/system

system-packages:
	@echo $(SYSTEM_PACKAGES)

# Every warning is an error. The pages load nothing from elsewhere.
site: $(SITE_VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(SITE_VENV)/bin/mkdocs build --quiet --strict --site-dir $(abspath $(SITE))

# Hashes for every platform and Python; no address of an index, so that any mirror serves.
lock:
	$(RUN)/python -m pip install --quiet uv
	$(RUN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --quiet --extra dev --extra languages --group build pyproject.toml --output-file requirements.lock
	$(RUN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --quiet --extra dev --extra languages --group build --group test pyproject.toml --constraints requirements.lock \
	  --output-file requirements-test.lock
	$(RUN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header --quiet --group site --output-file requirements-site.lock
	for folder in tests/benchmarks/fastmcp tests/fleet/fastmcp tests/fleet/servers; do \
	  $(RUN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	    --no-header --quiet --no-strip-extras $$folder/requirements.in --output-file $$folder/requirements.lock \
	    || exit 1; \
	done

clean:
	rm -rf $(VENV) .mcpfleet
