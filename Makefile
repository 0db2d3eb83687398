# The commands of a checkout; everything is installed into .venv and nothing outside the folder is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
# Certificates of this machine, as pip takes them: behind a proxy with a root of its own, others fail.
export UV_SYSTEM_CERTS ?= 1
LOCK := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

# Where `make demo` indexes: embedded or elasticsearch.
BACKEND ?= embedded
DEMO_elasticsearch := --config configs/elastic.yaml

# What needs no Ray runs side by side; a Ray cluster wants the machine for itself.
SIDE_BY_SIDE := tests/unit tests/contract tests/component
WORKERS ?= 2

.PHONY: setup setup-all demo test k8s-validate lint format lock clean

setup: $(VENV)/.run  ## install what running needs

setup-all: $(VENV)/.all  ## install what tests need too, torch among it

demo: setup  ## start the graph, index the Python standard library, search it
	$(if $(filter embedded elasticsearch,$(BACKEND)),,$(error BACKEND is embedded or elasticsearch, not $(BACKEND)))
	$(BIN)/strata demo $(DEMO_$(BACKEND))

test: setup-all  ## all tests: units, contracts and components on two workers, then the rest on a real Ray cluster
	# Without Go, KubeRay's schema alone is left out.
	$(BIN)/strata k8s validate $(if $(shell command -v go),,--no-fetch)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(SIDE_BY_SIDE)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE:%=--ignore=%)

k8s-validate: setup-all  ## every manifest of every overlay; Go fetches KubeRay's schema, once
	$(BIN)/strata k8s validate

lint: setup-all  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(VENV)/.bootstrap  ## recompile the locks from pyproject.toml
	$(LOCK) requirements/bootstrap.in -o requirements/bootstrap.lock
	$(LOCK) pyproject.toml -o requirements/run.lock
	$(LOCK) pyproject.toml --extra torch -o requirements/gpu.lock
	$(LOCK) pyproject.toml --extra torch --extra eval --extra bench --extra dev -o requirements/all.lock

clean:  ## stop the service and remove everything made here
	-test ! -x $(BIN)/strata || { $(BIN)/strata down; $(BIN)/strata es stop; }
	rm -rf $(VENV) .strata build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.bootstrap: requirements/bootstrap.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Strata needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $<
	touch $@

$(VENV)/.run: requirements/run.lock pyproject.toml $(VENV)/.bootstrap
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r $<
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.all: requirements/all.lock $(VENV)/.run
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r $<
	touch $@
