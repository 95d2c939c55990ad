# What can be done here; `make` alone lists it. All of it goes through run.py, which needs no setup.

PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help setup check test test-oldest soak model bench demo docs

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## make the virtual environment in .venv
	$(PYTHON) run.py setup

check:  ## formatting, lint, types, import contracts
	$(PYTHON) run.py check

test:  ## the checks, then the test suite
	$(PYTHON) run.py test

test-oldest:  ## the suite against the oldest supported Celery, kombu and redis-py
	$(PYTHON) run.py test --oldest

soak:  ## the long-running tests; their figures go to docs/explanation/how-we-test.md
	$(PYTHON) run.py soak

model:  ## check the model of leases and fences, all of it (needs spin and gcc)
	$(PYTHON) run.py model

bench:  ## the benchmarks
	$(PYTHON) run.py bench

demo:  ## see an outage and its recovery
	$(PYTHON) run.py demo

docs:  ## build the documentation into docs/_build
	$(PYTHON) run.py docs
