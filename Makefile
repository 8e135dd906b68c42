# Everything that a clone needs: Python 3.11 or newer, and make. The rest goes into .venv.

PYTHON ?= python3
DIR ?= runs/demo
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
MINUTES ?= 30
SEED ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := $(VENV)/.installed
ROOMS := unit contract property fuzz golden simulation chaos tidy

# One thread a process: results must not depend on it, and the tests share two cores.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo check test chaos soak compose-test compose-chaos geo-test fuzz audit bench \
  bench-quick docs study clean

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

# Rooms with servers or processes come last (tests/conftest.py); tests are handed out one by one.
test: setup
	$(BIN)/python -m pytest $(ROOMS:%=tests/%) -n 2 --dist loadgroup --no-loadscope-reorder \
	  --durations=25 \
	  --cov --cov-config=tests/pure.coverage.ini --cov-report=term:skip-covered

chaos: setup
	$(BIN)/python -m pytest tests/chaos tests/simulation --long

# Hurts a cluster of real processes for so long; SEED=7 strikes as another soak of that seed did.
soak: setup
	$(BIN)/python -m tests.chaos.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Builds the images, runs the compose cluster and kills one container of each kind, then the
# contract suite on servers in containers; wants docker, or podman as root.
compose-test: setup
	$(BIN)/python -m pytest tests/containers --long -s --ignore tests/containers/test_chaos.py

# Crash, pause, disconnect, restart of each service of the compose cluster; about ten minutes.
compose-chaos: setup
	$(BIN)/python -m pytest tests/containers/test_chaos.py --long -s

# A hub and two regions in network namespaces, one of them cut off; wants root, ip, tc and nginx.
geo-test: setup
	$(BIN)/python -m pytest tests/geo --long -s

# Everything that strangers may hand over, bent: FUZZ="--room words --seconds 60" is a part of it.
fuzz: setup
	$(BIN)/python -m tests.fuzz $(FUZZ)

# The installed releases against the list of known faults (osv.dev), by a tool of its own place.
audit: setup
	$(BIN)/python -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --strict --vulnerability-service osv --disable-pip --no-deps \
	  -r constraints.txt

# One table, and bench.json beside it: BENCH="--room merge" is a part of it.
bench: setup
	$(BIN)/python -m tests.bench $(BENCH)

bench-quick: setup
	$(BIN)/python -m tests.bench --quick $(BENCH)

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
