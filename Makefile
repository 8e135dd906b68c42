# Everything that a clone needs: Python 3.11 or newer, and make. The rest goes into .venv.

PYTHON ?= python3
DIR ?= runs/demo
TORCH ?= torch==2.13.0
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
ROOMS := unit contract property golden simulation chaos tidy

# One thread a process: results must not depend on it, and the tests share two cores.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo check test chaos bench docs study clean

setup: $(INSTALLED)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; say which with: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and by itself: it is the one large download, and TORCH_INDEX picks its build.
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) install --quiet -c constraints.txt -e '.[local,dev]'
	@touch $@

demo: setup
	$(BIN)/decodiloco demo --dir $(DIR)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/tidy

# Rooms with servers or processes run one test at a time and last (tests/conftest.py).
test: setup
	$(BIN)/python -m pytest $(ROOMS:%=tests/%) -n 2 --dist loadgroup --no-loadscope-reorder \
	  --cov --cov-config=tests/pure.coverage.ini --cov-report=term:skip-covered

chaos: setup
	$(BIN)/python -m pytest tests/chaos --long

bench: setup
	$(BIN)/python -m tests.bench

docs: setup
	$(BIN)/python docs/generate.py

# What docs/explanation/study/results.jsonl has is not run again; STUDY="--part rules --seeds 1"
# is a part of it. To run all of it afresh, name another file: STUDY="--results mine.jsonl".
study: setup
	$(BIN)/python -m replay.study $(STUDY)

# Runs are yours: `clean` leaves runs/ alone.
clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
