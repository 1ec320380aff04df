# The front door. `make help` lists what it opens.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CACHE ?= $(or $(ACTIVITYPOOL_CACHE),$(HOME)/.cache/activitypool)
export ACTIVITYPOOL_CACHE := $(CACHE)
PYTHON ?= python3
UV := $(CACHE)/uv/bin/uv
export UV_CACHE_DIR := $(CACHE)/uv-cache
# Some containers set it. Then each of the thousands of processes that tests start would compile both packages anew.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(UV):
	@echo "==> a package installer for the development environment"
	@$(PYTHON) -m venv $(CACHE)/uv && $(CACHE)/uv/bin/pip install --quiet --disable-pip-version-check uv

.venv/.ready: pyproject.toml .ci/dev.lock | $(UV)
	@echo "==> development environment (.venv, from .ci/dev.lock)"
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python .ci/dev.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

.PHONY: env prepare bare lock newest lint unit test ten coverage faults soak soak-steps soak-broker kafka bench demo cluster-up cluster-down images crds
env: .venv/.ready ## Make the development environment (.venv) from the lock

lock: | $(UV) ## Renew the locks from pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev --no-emit-package activitypool -o .ci/dev.lock pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra worker --extra redis --extra steps --extra taskbroker --extra kafka -o worker_image/requirements.lock pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra worker --extra redis -c worker_image/requirements.lock -o worker_image/requirements-slim.lock pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra redis --extra steps -c worker_image/requirements.lock -o worker_image/handler.lock worker_image/handler.in pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra redis -c worker_image/handler.lock -o worker_image/handler-slim.lock worker_image/handler.in pyproject.toml
	@$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra operator -o operator/requirements.lock pyproject.toml

newest: | $(UV) ## Make .venv with the newest releases, also beyond the upper bounds of pyproject.toml
	@mkdir -p build && sed -nE 's/^ *"([a-z0-9-]+)[^"]*,<.*/\1/p' pyproject.toml | sort -u > build/newest.in
	@$(UV) pip compile --quiet --python-version 3.13 --extra dev --no-emit-package activitypool --override build/newest.in -o build/newest.lock pyproject.toml
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --python $(BIN)/python build/newest.lock
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch .venv/.ready

lint: env ## Style, types, layers, waits in tests, names, prose and sizes
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.scripts.check_waits
	@$(BIN)/python -m tests.scripts.check_names
	@$(BIN)/python -m tests.scripts.check_prose

unit: env ## The tests without I/O
	@$(BIN)/pytest tests/unit -n auto --dist worksteal

prepare: env ## Install and build all that the suites and the demo need; what is there is only looked up
	@$(BIN)/python -m tests.prepare

bare: env ## make prepare and a smoke of each suite in a bare Debian, without this machine's packages (root, Linux)
	@$(BIN)/python -m tests.prepare.bare

test: prepare ## Every suite, several at a time, with a table of the time each took (about 20 min; SUITES=)
	@$(BIN)/python -m tests.suites $(SUITES)

ten: prepare ## The cluster's suites ten times, each beside two busy loops; rows in tests/README.md (hours; RUNS=)
	@$(BIN)/python -m tests.suites.ten $(if $(RUNS),--runs $(RUNS))

coverage: prepare ## What the suites run of both packages, a table per package and the gaps (on a quiet machine)
	@$(BIN)/python -m tests.coverage_report

faults: prepare ## Every fault at every call and event of the operator, with a table of what it cost (hours; PART=, EVERY=)
	@$(BIN)/python -m tests.faults $(if $(PART),--part "$(PART)") $(if $(EVERY),--every $(EVERY))

soak: prepare ## 30 minutes at load with random faults, and a table (MINUTES=, SEED=; on a quiet machine)
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

soak-steps: prepare ## 10,000 instances of durable tasks in each store, runners killed at random, and a table (about 6 min)
	@$(BIN)/python -m tests.endurance steps --instances 10000

soak-broker: prepare ## 10,000 tasks of a taskbroker on each store, brokers and workers killed at random, and a table (long)
	@$(BIN)/python -m tests.endurance broker --tasks 10000

demo: prepare ## From nothing to a pool that goes 0 -> 10 -> 0, and back to nothing (KEEP=1 keeps it)
	@$(BIN)/python -m tests.demo

kafka: prepare ## The broker's tests of Kafka on Apache Kafka itself; `make test` has them on a mock cluster (about 3 min)
	@$(BIN)/python -m tests.prepare kafka
	@ACTIVITYPOOL_KAFKA=apache $(BIN)/pytest tests/integration/broker/kafka

bench: prepare ## Every benchmark, with a table of ratios and how each was measured (about 12 min, on a quiet machine)
	@$(BIN)/python -m tests.prepare bench
	@$(BIN)/python -m tests.bench

crds: env ## Generate crds/ from the models
	@$(BIN)/python -m activity_operator.api.schema --write crds/activitypools.activitypools.dev.yaml
	@cp crds/activitypools.activitypools.dev.yaml charts/activity-operator/files/

images: prepare ## Build the worker's and the operator's image and load them into the local cluster
	@$(BIN)/python -m tests.prepare --image activity-worker:dev worker_image/Dockerfile .
	@$(BIN)/python -m tests.prepare --image activity-operator:dev operator/Dockerfile .

cluster-up: prepare ## Boot a real local Kubernetes cluster (kind with Docker, else embedded on Linux as root)
	@$(BIN)/python -m tests.cluster up

cluster-down: env ## Stop it and leave the machine as it was
	@$(BIN)/python -m tests.cluster down
