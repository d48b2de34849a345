# Everything one does with a clone; `make` alone lists it.

VENV := .venv
BIN := $(VENV)/bin
# The first of these that will do; or the one that is given: make PYTHON=/somewhere/bin/python3.12
PYTHON ?= python3.13 python3.12 python3.11 python3
# Stamps: the packages of the lock are in the environment; this clone is installed in it, editable.
LOCKED := $(VENV)/locked
INSTALLED := $(VENV)/installed
IN_TESTS := cd tests && PYTHONPATH=$(CURDIR)/tools $(CURDIR)/$(BIN)/python -m
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# PySpark's build takes 2.3 GB of scratch space. /tmp may be in memory, so it is not used.
SCRATCH := $(VENV)/scratch

# Empty is unset: without bytecode, each worker, driver and command would compile its modules again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Targets are steps of one small machine's work, and their output is read by people: never two at once.
.NOTPARALLEL:
.PHONY: help demo demo-k8s check test test-rest test-all e2e cluster-up cluster-down cluster-status bench bench-assign \
  bench-audit bench-failover bench-mirror bench-operator bench-preserved bench-verify soak mutations lint style types docs format generate lock wheel images images-test push install-kubernetes bundle sbom clean preflight

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: preflight $(INSTALLED)  ## real Kafka brokers, a flow, a killed driver, a verdict: on this machine
	@$(BIN)/headrace demo

# It builds a Prometheus, and takes three minutes: make e2e runs it.
MONITORING := tests/integration/test_monitoring.py
# Test processes. Where tests need them, each has its own brokers, and all share one API server
# (tests/support/side_by_side.py).
# WORKERS=0 runs one test after another.
WORKERS := 4
# LONG=1 adds the tests that are marked long to test-all and e2e.
MARKED := $(if $(LONG),,-m "not long")
PYTEST := $(BIN)/pytest
SIDE_BY_SIDE := $(PYTEST) --numprocesses $(WORKERS)
stage = @printf '\n== %s\n' "$(1)"

# Types take as long as the other checks together: both run at the same time, and the types' output comes last.
check: $(INSTALLED)  ## lint, types, links of the pages, unit and property tests
	@$(MAKE) --no-print-directory types > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory style docs; others=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.txt; exit $$((others | types))
	$(call stage,Unit and property tests: they need no cluster)
	$(PYTEST) --numprocesses $(WORKERS) -m "not long" tests/unit tests/property

test: check  ## check, then one test of each feature on real brokers and a real API server
	$(call stage,One test of each feature of docs/tested-features.md on real brokers and a real API server)
	$(SIDE_BY_SIDE) --verbose --tier features tests/chart tests/integration

test-rest: $(INSTALLED)  ## the tests that make test and make e2e leave out; LONG=1 adds the long ones
	$(call stage,All other tests of the chart and on real brokers and a real API server)
	$(SIDE_BY_SIDE) $(MARKED) --tier rest tests/property tests/chart tests/integration --ignore=$(MONITORING)
ifdef LONG
	$(call stage,Property tests again with eight times as many examples)
	$(PYTEST) --numprocesses $(WORKERS) --hypothesis-profile thorough -m "hypothesis and not long" tests/unit tests/property
endif

test-all: test test-rest e2e  ## every test but soak and benchmarks, also in a real cluster; LONG=1 adds the long ones

e2e: $(INSTALLED)  ## what fails in a cluster fails here first: pods of a real one, left up; LONG=1 as above
	$(call stage,Images and programs of the real cluster)
	@$(IN_TESTS) e2e.prepare tests
	$(call stage,Tests in pods of a real cluster and with a real Prometheus)
	$(PYTEST) $(MARKED) tests/e2e $(MONITORING)

demo-k8s: $(INSTALLED)  ## brokers, operator, a flow and its test in a real cluster, to the verdict; left up
	@$(IN_TESTS) e2e.prepare demo
	@$(IN_TESTS) e2e.demo $(CURDIR)/dist/images

cluster-up: $(INSTALLED)  ## a real Kubernetes cluster for tests: by kind where Docker answers, else as root
	@$(IN_TESTS) cluster up

cluster-down: $(INSTALLED)  ## remove it; images and built programs stay in the cache
	@$(IN_TESTS) cluster down

cluster-status: $(INSTALLED)  ## is it up, does it work, and the KUBECONFIG to ask it with
	@$(IN_TESTS) cluster status

bench: bench-assign bench-operator bench-verify  ## the benchmarks below: an hour, on a machine that does nothing else

bench-assign: $(INSTALLED)  ## how long assignors take at 1,000,000 tasks, in what memory: five minutes
	$(BIN)/python tests/bench/assign.py
	$(BIN)/python tests/bench/racks.py

bench-operator: $(INSTALLED)  ## the operator, its API server real, its drivers simulated: 200 flows, 10,000 tasks
	$(IN_TESTS) bench.operator --full

# Not part of bench: about an hour and a half by itself. Ten minutes: make bench-mirror QUICK=1; parts of it: PART=catch-up, delivery, rates, neighbours
bench-mirror: $(INSTALLED)  ## headrace beside MirrorMaker 2 and franz-go, on the same brokers: speed, CPU, memory, latency
	@$(IN_TESTS) bench.mirror $(if $(QUICK),--quick) $(if $(PART),--part $(PART))

# A quarter of an hour; parts of it: PART=cpu, transactions, padding, compacted; of the last two: OFFSETS=100000000
bench-preserved: $(INSTALLED)  ## offsets.mode: Preserved: CPU beside Translated, transactions a second, filled starts, compacted topics
	@$(IN_TESTS) bench.preserved $(if $(PART),--part $(PART)) $(if $(OFFSETS),--offsets $(OFFSETS))

# The figures of 100,000,000 need 40 GB of disk: make bench-verify MESSAGES=100000000
MESSAGES := 1000000
bench-verify: $(INSTALLED)  ## a mirror test's load and comparison, beside a job that only reads and counts
	@$(IN_TESTS) bench.verify --messages $(MESSAGES)

# 42 GB of disk, and 23 GB with CODEC=lz4: make bench-audit MESSAGES=100000000 GIGABYTES=20 TURNS=1
GIGABYTES := 1
TURNS := 3
CODEC := none
bench-audit: $(INSTALLED)  ## an audit beside a job that only reads and counts, and an incremental audit
	@$(IN_TESTS) bench.audit --messages $(MESSAGES) --gigabytes $(GIGABYTES) --turns $(TURNS) --codec $(CODEC)

# A quarter of a minute each: make bench-failover SWITCHES=10
SWITCHES := 100
bench-failover: $(INSTALLED)  ## fail-overs of one sandbox: what 20 groups read again or skip, how long one takes
	@$(IN_TESTS) bench.failover --switches $(SWITCHES)

# Another one: make soak MINUTES=2 SEED=7. WIRE=1 damages the connections instead of brokers and drivers.
MINUTES := 10
soak: $(INSTALLED)  ## ten minutes of faults at random, under load: every record is accounted for
	@$(IN_TESTS) soak$(if $(WIRE),.wire) --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# Half an hour or more. Others: make mutations SEED=2 COUNT=10
COUNT := 40
mutations: $(INSTALLED)  ## small faults in the product, one at a time: do the unit and property tests find them?
	@PYTHONPATH=tools $(BIN)/python -m mutations --seed $(or $(SEED),1) --count $(COUNT)

PROSE = PYTHONPATH=tools $(BIN)/python -m prose
lint: style types  ## check format, style, types, contracts between the rooms, and plain English

style: $(INSTALLED)
	$(call stage,Format and style and contracts between the rooms and plain English)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	@$(PROSE)

types: $(INSTALLED)
	$(call stage,Types)
	$(BIN)/mypy

format: $(INSTALLED)  ## format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## the documentation as a site, in dist/site; fails at a link that leads nowhere
	$(call stage,Pages and their links)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

generate: $(INSTALLED)  ## write the pages, pictures and CRDs that are generated from the code
	$(BIN)/python -m headrace.api.crds crds charts/headrace/files/crds
	$(BIN)/python -m headrace.api.reference > docs/reference.md
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/metrics.py
	$(BIN)/python docs/chart_values.py
	$(BIN)/python docs/dashboards.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/autoscaling_picture.py

# The first lock has all packages. The locks of the images and of the wheel builds are parts of it.
COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --quiet \
  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
lock: $(INSTALLED)  ## pin the newest packages that pyproject.toml allows
	$(COMPILE) pyproject.toml --extra dev --group build --upgrade --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra operator -c requirements.lock -o operator/requirements.lock
	$(COMPILE) pyproject.toml --extra operator --extra spark -c requirements.lock \
	  -o spark-jobs/requirements.lock
	$(COMPILE) --group build -c requirements.lock -o tools/images/build.lock
	$(COMPILE) --group compiler -o tools/images/compiler.lock

wheel: $(INSTALLED)  ## build the distribution into dist/
	$(BIN)/hatchling build --target wheel

# Platform of the images, if it is not this machine's: make images PLATFORM=linux/arm64
PLATFORM :=
images push sbom: export HEADRACE_PLATFORM := $(PLATFORM)
images: $(INSTALLED)  ## build the images headrace and headrace-spark, by Docker or by buildah
	cd tools && $(CURDIR)/$(BIN)/python -m images build

images-test: $(INSTALLED)  ## build the images and the tests' brokers, with archives for the tests' cluster in dist/images
	cd tools && $(CURDIR)/$(BIN)/python -m images test

# A path of KEY is one of the clone's folder, or absolute.
KEY :=
COSIGN_FLAGS :=
push: export HEADRACE_KEY := $(if $(findstring :,$(KEY)),$(KEY),$(if $(KEY),$(abspath $(KEY))))
push: export HEADRACE_COSIGN_FLAGS := $(COSIGN_FLAGS)
push: $(INSTALLED)  ## build and push both and the chart, signed with KEY: make push REGISTRY=registry.example/team
	@cd tools && $(CURDIR)/$(BIN)/python -m images push "$(REGISTRY)"

install-kubernetes: push  ## push, and install the operator by Helm: make install-kubernetes REGISTRY=registry.example/team
	helm upgrade --install headrace charts/headrace --namespace headrace --create-namespace \
	  --set image.repository="$(REGISTRY)/headrace" --wait

bundle: $(INSTALLED)  ## a bundle for OLM, in dist/bundle: make bundle REPOSITORY=registry.example/team/headrace
	@cd tools && $(CURDIR)/$(BIN)/python -m images bundle "$(REPOSITORY)"

sbom: $(INSTALLED)  ## list what is inside both (SPDX) and its licences, in dist/images
	cd tools && $(CURDIR)/$(BIN)/python -m images sbom

clean:  ## remove all build results and the environment, but no caches of the user
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .prose_cache .pytest_cache .hypothesis .import_linter_cache
	find operator spark-jobs tests -name __pycache__ -prune -exec rm -rf {} +

preflight:
	@$(python) -I operator/headrace/toolchain/preflight.py $(LOCKED) requirements.lock

# PySpark is published as source only. What builds it is installed first, from the lock like all the
# rest: pip would fetch the newest, without a hash.
$(LOCKED): requirements.lock tools/images/build.lock
	$(python) -m venv --clear $(VENV)
	@mkdir $(SCRATCH)
	TMPDIR="$(CURDIR)/$(SCRATCH)" $(PIP) install --require-hashes -r tools/images/build.lock
	TMPDIR="$(CURDIR)/$(SCRATCH)" $(PIP) install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
	@rm -r $(SCRATCH)
	@touch $@

$(INSTALLED): pyproject.toml hatch_build.py $(wildcard operator/headrace/kafka/wire/*.[ch]) $(LOCKED)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# "good", or what is wrong with it. Debian's python3 has venv without the ensurepip that venv needs.
LOOK := import sys; v = sys.version_info; \
  print("is %d.%d.%d" % v[:3] if not (3, 11) <= v[:2] <= (3, 13) else \
  "good" if __import__("importlib.util").util.find_spec("ensurepip") else "has no venv module")
look = $(shell $(1) -c '$(LOOK)' 2>/dev/null || echo cannot be run)
python = $(or $(firstword $(foreach p,$(PYTHON),$(if $(filter good,$(call look,$p)),$p))),$(error \
  headrace needs Python 3.11, 3.12 or 3.13 with its venv module (Debian, Ubuntu: python3-venv); \
  $(foreach p,$(PYTHON),$p $(call look,$p);) `make PYTHON=...` uses another path))
