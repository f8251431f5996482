# One entry for everything. Each target makes .venv and installs what it needs.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check -q
CORE   := $(VENV)/.stamp-core
SPARK  := $(VENV)/.stamp-spark
DEV    := $(VENV)/.stamp-dev
DOCS   := $(VENV)/.stamp-docs
# The tests run in this many processes; `make test WORKERS=0` runs them in one.
WORKERS ?= 2
# Further arguments: `make test ARGS="tests/unit -k calendar"`.
ARGS ?=
# How long `make fuzz` runs atheris on each decoder, where atheris can be installed.
FUZZ_SECONDS ?= 60
# Without cached bytecode each of the processes that tests start compiles the library, and each
# worker of pytest rewrites the asserts of all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-spark quick test long full changed record check format bench notebooks docs \
  nightly crash fuzz dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-11s %s\n", $$1, $$2}'

demo: $(CORE) ## run the demonstration
	$(PY) -m lowwater demo $(ARGS)

demo-spark: $(SPARK) ## run the demonstration on Spark and compare (needs Java)
	$(PY) -m lowwater demo --spark $(ARGS)

quick: $(DEV) ## run the fast tests, without Java: about a minute
	LOWWATER_HYPOTHESIS_PROFILE=quick $(PY) -m pytest -n $(WORKERS) --dist loadscope \
	  -m 'not slow and not long and not spark' tests/unit tests/conformance tests/property $(ARGS)

test: $(DEV) ## run the tests, but for the long ones; those of Spark need Java 17 or later
	$(PY) -m pytest -n $(WORKERS) --dist loadscope -m 'not long' $(ARGS)

long: $(DEV) ## run the long tests: kills, notebooks, the site, more on Spark
	$(PY) -m pytest -n $(WORKERS) --dist loadscope -m long $(ARGS)

full: $(DEV) ## run what test and long run, in one go
	$(PY) -m pytest -n $(WORKERS) --dist loadscope $(ARGS)

changed: $(DEV) ## run the tests that a change can break: ARGS="--base main", "--list"
	$(PY) -m tests.changed -n $(WORKERS) --dist loadscope $(ARGS)

record: $(DEV) ## record which modules each test file executes, and how long it takes
	rm -rf build/record
	mkdir -p build/record
	LOWWATER_RECORD=$(CURDIR)/build/record $(PY) -m pytest -n $(WORKERS) --dist loadscope \
	  -m 'not long' $(ARGS)
	LOWWATER_RECORD=$(CURDIR)/build/record $(PY) -m tests.record

check: $(DEV) ## check formatting, lint, and types, also those of docs and examples
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(PY) tools/user_types.py

format: $(DEV) ## format the code and apply automatic lint fixes
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(DEV) ## run the benchmarks
	$(PY) -m benchmarks $(ARGS)

notebooks: $(DEV) ## execute the notebooks and save their output
	$(PY) -m notebooks.execute $(ARGS)

docs: $(DOCS) ## build the documentation into build/site
	$(PY) -m docs.tools.capabilities
	$(PY) -m docs.tools.types
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)

nightly: $(DEV) ## run the property tests with many examples, the protocol in larger bounds, and a cluster
	LOWWATER_HYPOTHESIS_PROFILE=nightly $(PY) -m pytest -n $(WORKERS) --dist loadscope \
	  tests/property tests/unit tests/poison tests/protocol tests/spark/cluster_campaign.py \
	  tests/spark/graph_campaign.py tests/spark/benchmark_campaign.py tests/spark/inputs_campaign.py \
	  tests/spark/own_process_campaign.py \
	  tests/spark/test_capabilities.py $(ARGS)

crash: $(DEV) ## kill durable runs 1,000 times and Spark queries 112 times, and compare the output
	LOWWATER_KILLS=500 LOWWATER_SPARK_KILLS=112 LOWWATER_KAFKA_KILLS=20 LOWWATER_KAFKA_CUTS=5 \
	  $(PY) -m pytest -rP tests/crash tests/spark/kill_campaign.py $(ARGS)

fuzz: $(DEV) ## feed hostile input to all readers, and damaged bytes to all that reads stored bytes
	$(PY) -m tests.hostile.campaign 1000
	LOWWATER_HYPOTHESIS_PROFILE=fuzz $(PY) -m pytest -n $(WORKERS) \
	  tests/property/test_decoders.py $(ARGS)
	-$(PIP) install -e '.[fuzz]'
	$(PY) -m tests.property.fuzz $(FUZZ_SECONDS)

dist: $(DEV) ## build the wheel and the sdist, and try both in an empty environment
	rm -rf dist
	$(PY) -m build --outdir dist $(ARGS)
	$(PY) -m tests.distribution dist

clean: ## remove .venv, caches and build output
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
