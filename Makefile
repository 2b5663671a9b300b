# Short verbs. Each one sets up .venv by itself; nothing but python3 (3.11 or newer) and make is assumed.
#   make demo     set everything up and run the demonstration
#   make test     set everything up and run the tests
#   make help     all the verbs

PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?=
PYTEST := $(BIN)/python -m pytest --dist loadgroup
export PYTHON

# Where this is set, every test process would rewrite the assertions of all tests again, and every process that a test
# starts would compile what has changed: more than a minute of CPU in each run.
test test-slow: export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo test test-slow check audit format bench docs lock clean

help: ## show the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## create or refresh .venv
	@scripts/setup --extra spark

demo: setup ## people in a city are told of emergencies near them while brokers are killed; and the account
	@$(BIN)/tocsin demo

# More test processes than two cores: a good part of the suite waits for real processes, timers and servers.
test: setup ## run the tests (Debian test programs are installed when missing and allowed)
	@$(PYTEST) -n 4 $(PYTEST_ARGS)

test-slow: setup ## run the long suites: every fault at full length, SEEDS=50 seeds of each scenario
	@$(PYTEST) -n 2 -m slow -o timeout=900 $(PYTEST_ARGS)

check: setup ## lint, format check, types, import directions, licences
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/audit --licences

audit: setup ## licences of what is installed, and advisories about it where an index is reachable
	@$(BIN)/python scripts/audit

format: setup ## rewrite the code in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## measure; figures go to bench/results/
	@$(BIN)/python -m bench

docs: ## build the documentation into site/
	@scripts/setup --group docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: setup ## refresh uv.lock from pyproject.toml
	@$(BIN)/uv lock

clean: ## remove everything that was built or started here, .venv included
	rm -rf .venv site dist bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
