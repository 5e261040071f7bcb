# `make test` is what CI runs, and all that it runs.
.DEFAULT_GOAL := test
.PHONY: setup demo test lint tools format clean

PYTHON ?= python3
BIN := .venv/bin
CODE := $(wildcard beamdeploy tests scripts benchmarks)
TYPED := $(sort $(foreach folder,$(CODE),$(if $(shell find $(folder) -name '*.py' -print -quit),$(folder))))
# More workers than cores: a test on real parts waits more than it computes.
# A test on real parts that a busy machine upset is run once more, and said to have been.
PYTEST_FLAGS ?= -n 4 --dist worksteal --reruns 2 -rR

setup: .venv/stamp

# The package alone, for who wants to try it and not to change it.
.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "beamdeploy needs Python 3.11 or newer; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { test "$$(id -u)" = 0 && command -v apt-get && \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv; } || \
	    { echo "This Python cannot make a virtual environment; as root: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/stamp: pyproject.toml .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The main job on an emulated GPU host. FAULT=cuda-oom shows a failure; `beamdeploy sandbox faults` lists them.
demo: .venv/installed
	@$(BIN)/python scripts/demo.py '$(FAULT)'

lint: setup
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --strict $(TYPED)

# sshd, dockerd and a registry for the integration tests; without root, the tests name what is missing.
tools:
	@if test -x scripts/install-test-tools && test -e /etc/debian_version && test "$$(id -u)" = 0; then \
	    scripts/install-test-tools; fi

# Bytecode first: where it may not be written, each of the thousand commands that the tests run would compile all of it.
test: setup tools lint
	$(BIN)/python -m compileall -q beamdeploy tests
	$(BIN)/pytest $(PYTEST_FLAGS)

format: setup
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
