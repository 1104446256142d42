# SPDX-License-Identifier: Apache-2.0
# Needs python3 (>= 3.11, with venv and its C headers), a C compiler and make; everything else goes to .venv and build.
# ARGS is handed on: make test ARGS="-k queue -x"; PROCESSES=0 runs the tests in one process.

PYTHON ?= python3
# Two more than there are processors: the tests with Spark, which share one process, often wait for it, and others for
# a time to pass.
PROCESSES ?= $(shell expr $$(nproc) + 2)
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The package is installed in place, so that only C sources make a new build necessary, and Python modules that come or
# go; folders notice those, and deleted files.
NATIVE := $(shell find cffi_src; find shmbroker cli/shmbroker_cli pyspark_shmbroker -name __pycache__ -prune -o -type d -print)
C_FILES := $(shell find cffi_src tests/c benchmarks/c -name '*.[ch]' 2>/dev/null)
# In CI warnings are errors, so a build made without CI does not count there.
PACKAGE := $(STAMPS)/package$(if $(CI),-ci)

# Without a Java the tests with Spark say so and are skipped; and Spark is much to install.
SPARK := $(if $(JAVA_HOME)$(shell command -v java),$(STAMPS)/spark)

# Requirements out of pyproject.toml, for example $(call requirements,["build-system"]["requires"]).
requirements = $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))$(1))')

.PHONY: test build check demo demo-spark lint lint-ruff lint-format lint-mypy lint-clang format bench docs images wheel models races mutants mutation mutation-package chaos queue-machine power-loss fuzz memcheck clean

# Where a registry does not have what the tests of `make mutation` read C with, they say so and are skipped.
test: $(PACKAGE) $(STAMPS)/test $(STAMPS)/wheel $(SPARK)
	-@$(MAKE) --no-print-directory $(STAMPS)/mutation
	$(BIN)/python -m pytest tests --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0 $(ARGS)

build: $(PACKAGE) $(STAMPS)/test $(STAMPS)/lint

# For every commit, two minutes on two processors: the linters, and the tests that need no Spark and build no C program.
check: lint
	$(BIN)/python -m pytest tests/architecture tests/unit -m "not exhaustive" --numprocesses=$(PROCESSES) --dist=loadfile $(ARGS)

demo: $(PACKAGE)
	$(BIN)/shmbroker demo $(ARGS)

demo-spark: $(PACKAGE) $(SPARK)
	$(BIN)/shmbroker demo-spark $(ARGS)

# Separate, so that `make -k lint` shows what all of them have to say.
lint: lint-ruff lint-format lint-mypy lint-clang
lint-ruff: $(STAMPS)/lint
	$(BIN)/ruff check
lint-format: $(STAMPS)/lint
	$(BIN)/ruff format --check
lint-mypy: $(STAMPS)/lint $(PACKAGE) $(STAMPS)/test
	$(BIN)/mypy
lint-clang: $(STAMPS)/lint
	@echo "$(BIN)/clang-format --dry-run -Werror" of $(words $(C_FILES)) files
	@$(BIN)/clang-format --dry-run -Werror $(C_FILES)

format: $(STAMPS)/lint
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(C_FILES)

bench: $(PACKAGE) $(STAMPS)/bench build/bench/stamp
	SHMBROKER_BENCH_C=build/bench/benchmarks $(BIN)/python -m benchmarks --peers $(ARGS)

build/bench/stamp: $(STAMPS)/venv $(C_FILES)
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -G Ninja -S cffi_src -B build/bench -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DSB_BUILD_PYTHON=OFF -DSB_BUILD_BENCHMARKS=ON >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/bench >/dev/null
	@touch $@

# Warnings are errors, and the examples are run.
docs: $(PACKAGE) $(STAMPS)/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs/html
	$(BIN)/python -m sphinx -q -W --keep-going -b doctest docs build/docs/doctest

# The pictures of `shmbroker top`, of a broker that works for some seconds.
images: $(PACKAGE)
	$(BIN)/python docs/images/top.py

# The sources, and a wheel that is built from them: for Python 3.11 and later, and for the C library of this machine and later.
DIST ?= dist
wheel: $(STAMPS)/venv $(STAMPS)/wheel
	rm -rf $(DIST)
	$(BIN)/python -m build --no-isolation --outdir $(DIST)/built >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir $(DIST) $(DIST)/built/*.whl
	mv $(DIST)/built/*.tar.gz $(DIST)
	rm -r $(DIST)/built

models:
	$(PYTHON) tests/models/check.py $(ARGS)

# The C core in every order of its shared steps: a quarter of an hour; ARGS="-most 1000000" for all of them.
races: $(STAMPS)/venv
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S cffi_src --preset testhooks >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/testhooks --target races >/dev/null
	build/testhooks/tests/races -full $(ARGS)

mutants: $(STAMPS)/venv
	$(BIN)/python tests/mutations/run.py $(ARGS)

# All small faults that the C core can have: a night's work, which goes on where it was. ARGS="sb_ring.c --stage quick".
mutation: $(STAMPS)/venv $(STAMPS)/mutation
	$(BIN)/python -m tests.mutations.core $(ARGS)

# The same for the Python package: ARGS="'shmbroker/leasing/*' --stage unit".
mutation-package: $(PACKAGE) $(STAMPS)/test $(STAMPS)/mutation $(SPARK)
	$(BIN)/python -m tests.mutations.package $(ARGS)

chaos: $(PACKAGE) $(STAMPS)/test
	$(BIN)/python -m tests.chaos --seconds 600 $(ARGS)
	$(BIN)/python -m tests.chaos --seconds 600 --play dead-letters $(ARGS)
	$(BIN)/python -m tests.chaos --seconds 600 --play features $(ARGS)
	$(BIN)/python -m tests.chaos --seconds 600 --play stored $(ARGS)

# Queues of several processes beside a plain reference; STEPS=1000000 takes an hour or two. ARGS="--seed 17" repeats.
STEPS ?= 100000
queue-machine: $(PACKAGE) $(STAMPS)/test
	$(BIN)/python -m tests.queue_machine --steps $(STEPS) $(ARGS)

# A busy store, and power lost at many places of its writes: some minutes. ARGS="--places 1000 --losses 50 --seed 7".
power-loss: $(PACKAGE) $(STAMPS)/test
	$(BIN)/python -m tests.power_loss $(ARGS)

# A damaged broker, for as many seeds as one has time for: ARGS="-from 1000 -count 100000", ARGS="-seed 17".
fuzz: $(STAMPS)/venv
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S cffi_src --preset asan >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/asan --target fuzz >/dev/null
	build/asan/tests/fuzz -v $(ARGS)

# What the sanitizers do not see: words that nobody wrote.
MEMCHECK := valgrind --quiet --error-exitcode=9 --leak-check=full --trace-children=yes --fair-sched=yes
memcheck: $(STAMPS)/venv
	@command -v valgrind >/dev/null || { echo 'valgrind is missing: install it'; exit 1; }
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S cffi_src --preset testhooks >/dev/null
	PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/testhooks >/dev/null
	$(MEMCHECK) build/testhooks/tests/stress 100
	$(MEMCHECK) build/testhooks/tests/segments
	$(MEMCHECK) build/testhooks/tests/interleavings delayed configured

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'shmbroker needs Python 3.11 or newer: make PYTHON=python3.x'; exit 1; }
	@$(PYTHON) -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())' \
	  || { echo 'The C headers of Python are missing: install python3-dev'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet cmake ninja $(call requirements,["build-system"]["requires"])
	@mkdir -p $(@D) && touch $@

$(PACKAGE): $(STAMPS)/venv $(NATIVE)
	$(PIP) install --quiet --no-build-isolation --config-settings=build-dir=build/package --editable .
	@touch $@

$(STAMPS)/test $(STAMPS)/lint $(STAMPS)/bench $(STAMPS)/docs $(STAMPS)/mutation $(STAMPS)/spark $(STAMPS)/wheel: $(STAMPS)/%: $(STAMPS)/venv
	$(PIP) install --quiet $(call requirements,["project"]["optional-dependencies"]["$*"])
	@touch $@
