# One entry for everything. Each target makes .venv and installs what it needs.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -q
CORE   := $(VENV)/.stamp-core
SPARK  := $(VENV)/.stamp-spark
DEV    := $(VENV)/.stamp-dev
DOCS   := $(VENV)/.stamp-docs
# Tests run in this many processes; `make test WORKERS=0` runs them in one.
WORKERS ?= 2
# Further arguments: `make test ARGS="tests/unit -k calendar"`.
ARGS ?=
# Seconds that `make fuzz` gives to atheris, where it can be installed, for each decoder.
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo demo-spark test check format bench notebooks docs nightly crash fuzz clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

demo: $(CORE) ## run the demonstration
	$(PY) -m lowwater demo $(ARGS)

demo-spark: $(SPARK) ## run it on Spark, and compare (needs Java)
	$(PY) -m lowwater demo --spark $(ARGS)

test: $(DEV) ## run all tests
	$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

check: $(DEV) ## check format, lint and types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(DEV) ## format the code and fix what lint can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(DEV) ## measure speed
	$(PY) -m benchmarks $(ARGS)

notebooks: $(DEV) ## execute the notebooks and write their outputs
	$(PY) -m notebooks.execute $(ARGS)

docs: $(DOCS) ## build the site into build/site; works offline once installed
	$(PY) -m docs.tools.capabilities
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)

nightly: $(DEV) ## run the property tests with many examples
	LOWWATER_HYPOTHESIS_PROFILE=nightly $(PY) -m pytest -n $(WORKERS) tests/property tests/unit $(ARGS)

crash: $(DEV) ## kill durable runs and graphs 500 times, queries on Spark 60; compare what they give
	LOWWATER_KILLS=500 LOWWATER_SPARK_KILLS=60 \
	  $(PY) -m pytest -rP tests/crash tests/spark/test_kills.py $(ARGS)

fuzz: $(DEV) ## feed bytes that were never written to everything that reads stored bytes
	LOWWATER_FUZZ=5000 $(PY) -m pytest -n $(WORKERS) tests/property/test_decoders.py $(ARGS)
	-$(PIP) install -e '.[fuzz]'
	$(PY) -m tests.property.fuzz $(FUZZ_SECONDS)

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "lowwater needs Python 3.11 or later; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(PY)
	$(PIP) install -e '.[examples]'
	@touch $@

$(SPARK): pyproject.toml | $(PY)
	$(PIP) install -e '.[examples,spark]'
	@touch $(CORE) $@

$(DEV): pyproject.toml | $(PY)
	$(PIP) install -e '.[dev]'
	@touch $(CORE) $(SPARK) $@

$(DOCS): pyproject.toml | $(PY)
	$(PIP) install -e '.[docs]'
	@touch $(CORE) $@
