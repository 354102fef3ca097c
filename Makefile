# What there is to do here, each from a clean clone: `make demo`, `make check` and `make test` need Python 3.11 or
# newer, the rest also a JDK and Maven, which are installed where that is allowed, as are Prometheus and Kerberos for
# `make test-clusters` and Chromium for `make test-night`. `make native` needs Rust. PYTHON=python3.14 chooses
# the Python that the environment is made with.

VENV := .venv
BIN := $(VENV)/bin

# Each worker of pytest would rewrite and compile all tests anew, for 13 s of CPU.
unexport PYTHONDONTWRITEBYTECODE

# pip's own settings say where packages come from.
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517

.PHONY: help setup demo test test-clusters test-night coverage native agent chaos hostile soak mutants bench check lint map audit docs dist sbom image manifests format clean distclean

help:
	@echo 'make demo       two small Kafka clusters, and shoal copying between them'
	@echo 'make setup      the environment in .venv for a first change, which CONTRIBUTING.md explains'
	@echo 'make test       5 minutes: checks, and all tests that start nothing but Python'
	@echo 'make test-clusters  10 minutes: those on real Kafka and Spark'
	@echo 'make test-night  hours: chaos, soak, browsers, other versions of PySpark and Kafka, fuzzing, benches; NIGHT=20261130 repeats that night'
	@echo 'make coverage   both, and which lines and branches it has run, for twice the CPU'
	@echo 'make native     the inner loops in Rust, compiled by cargo into src/shoal, and tested; demo does not need them'
	@echo 'make agent      the Java agent for real Kafka (agent/README.md), tested: agent/start/target/shoal-agent.jar'
	@echo 'make chaos      400 trials in which everything is killed, cut, paused and changed; ARGS=--help says more'
	@echo 'make hostile    false responses to all clients, hostile requests to the gateway; ARGS=--help says more'
	@echo 'make soak       an hour between two locked clusters under constant faults; ARGS=--help says more'
	@echo 'make mutants    50 changes of one operator in the source, and the test that fails for each; ARGS=--help says more'
	@echo 'make bench      three hours: shoal and its rivals between two real clusters, into docs/performance.md; ARGS=--help says more'
	@echo 'make check      ruff, mypy, import-linter, and the language of changed files; ARGS=--all reads all files'
	@echo 'make map        each module with its first line; ARGS=retention: those that name this word'
	@echo 'make audit      known vulnerabilities of packages and crates, if a service can be asked'
	@echo 'make docs       the site, in site/; a broken link is an error'
	@echo 'make dist       sdists and wheels in dist/, built twice and compared; sbom: the list of packages that the wheel carries'
	@echo 'make image      an OCI image in dist/, from packages of Debian and PyPI alone; needs root, mmdebstrap and buildah'
	@echo 'make manifests  deploy/kubernetes built by kustomize, and checked by kubeconform'
	@echo 'make format     let ruff format the code, and write docs/cli.md, the tables of docs/metrics.md and the completion from it'
	@echo 'make clean      remove what tools left behind; distclean: the environment and Kafka, too'

setup: $(VENV)/for-test-core

demo: $(VENV)/for-demo
	@$(BIN)/shoal-demo $(ARGS)

# Several at a time, since most tests wait for brokers: three on two cores. Files stay together, since clusters are
# shared within one. Not reordered: the long files lie in the middle, and short ones fill up the end.
PARALLEL = --dist=loadfile --no-loadscope-reorder --numprocesses
# What takes long is seen in every run.
SLOWEST = --durations=40 --durations-min=5

# The files that have tests of the second tier: to collect all others takes each worker longer than these.
CLUSTER_TESTS = tests/integration tests/conformance $(sort $(shell \
  grep -lrE 'mark\.integration|spark: SparkSession' tests --include='test_*.py'))

AGENT_JAR = agent/start/target/shoal-agent.jar
AGENT_SOURCES = agent/pom.xml $(wildcard agent/*/pom.xml) $(shell find agent/*/src/main -type f)
MAVEN = mvn --batch-mode --quiet --file=agent/pom.xml

# Which test is in which of these three: tests/tiers.py. To collect a folder that has no test of the first tier
# takes each worker a second and a half.
# The native tests run if `make native` was run before.
test: $(VENV)/for-test check
	$(BIN)/python -m pytest -m 'not integration and not long' --ignore=tests/integration $(PARALLEL)=3 $(SLOWEST) $(ARGS)

test-clusters: $(VENV)/for-test native agent prometheus kerberos
	$(BIN)/python -m pytest -m 'integration and not long' $(PARALLEL)=3 $(SLOWEST) $(if $(filter tests/%,$(ARGS)),,$(CLUSTER_TESTS)) $(ARGS)

# The seed of a night's trials and inputs; that of another repeats them.
NIGHT := $(shell date -u +%Y%m%d)

# The fuzz tests once more, with inputs that no run has drawn before, and the native tests with AddressSanitizer.
test-night: $(VENV)/for-test native $(AGENT_JAR) browser
	@failed=0; echo "make test-night NIGHT=$(NIGHT)"; \
	$(BIN)/python -m pytest -m long --night=$(NIGHT) $(SLOWEST) $(ARGS) || failed=$$?; \
	SHOAL_FUZZ_EXAMPLES=2000 $(BIN)/python -m pytest tests/fuzz --hypothesis-seed=$(NIGHT) $(SLOWEST) --timeout=1800 || failed=$$?; \
	scripts/sanitize-native || failed=$$?; \
	exit $$failed

coverage: $(VENV)/for-test check native $(AGENT_JAR) prometheus kerberos
	$(BIN)/python -m pytest -m 'not long' --cov=shoal --cov=shoal_broker --cov-branch --cov-report=term $(PARALLEL)=2 $(SLOWEST) $(ARGS)

# Without the agent's own tests: brokers need no more.
$(AGENT_JAR): $(AGENT_SOURCES) | kafka-tools
	$(MAVEN) -DskipTests package
	@touch $@

agent: kafka-tools
	$(MAVEN) package
	@touch $(AGENT_JAR)

# If there is no cargo, the tests take Python's path alone, but not in CI.
native: $(VENV)/with-native

$(VENV)/with-native: native/Cargo.toml native/Cargo.lock $(wildcard native/src/*.rs) | $(VENV)/for-test
	@scripts/build-native

chaos: $(VENV)/for-test native kafka-tools
	$(BIN)/python -m tests.campaigns $(ARGS)

hostile: $(VENV)/for-test
	$(BIN)/python -m tests.hostile $(ARGS)

soak: $(VENV)/for-test native kafka-tools
	$(BIN)/python -m tests.campaigns --kind soak $(ARGS)

mutants: $(VENV)/for-test native
	$(BIN)/python -m tests.mutants $(ARGS)

bench: $(VENV)/for-test native kafka-tools
	$(BIN)/python -m bench $(ARGS)

# In CI there is no other branch to compare with: it reads the language of all files.
check: lint
	$(BIN)/python -m scripts.language $(if $(CI),--all,$(filter --all,$(ARGS)))
	$(BIN)/python -m scripts.private_names
	$(BIN)/python -m scripts.rig_starts

lint: $(VENV)/for-test-core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

map:
	@"$$(scripts/find-python)" scripts/print_map.py $(ARGS)

audit: $(VENV)/for-test
	@scripts/audit

# The variable silences material's announcement of its successor.
docs: $(VENV)/for-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: $(VENV)/for-wheels
	@scripts/build-dist

sbom: $(VENV)/for-release
	@scripts/write-sbom

# ARGS='amd64 arm64' builds both, also on another machine than theirs.
image: dist
	@scripts/build-image $(ARGS)

# kustomize and kubeconform are built with Go. Without it, this says so, and fails in CI.
manifests: | $(VENV)/for-test
	@scripts/check-manifests

# Findings do not end this: formatting may mend them, and `make check` reports the others.
format: $(VENV)/for-test-core
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_metrics.py

clean:
	rm -rf build dist site agent/target agent/*/target native/target .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) .kafka

.PHONY: kafka-tools
kafka-tools:
	@scripts/install-jdk-and-maven

.PHONY: browser
browser:
	@scripts/install-chromium

.PHONY: prometheus
prometheus: $(VENV)/for-test
	@scripts/install-prometheus

.PHONY: kerberos
kerberos: $(VENV)/for-test
	@scripts/install-kerberos

# The environment is made, or brought up to date, when a pyproject.toml is newer than it.
$(VENV)/for-%: pyproject.toml broker/pyproject.toml
	@python="$$(scripts/find-python)" && \
	  echo "Installing shoal, shoal-broker and the packages of the extra $* into $(VENV): about a minute the first time" && \
	  "$$python" -m venv $(VENV)
# The extras require shoal-broker, which requires shoal, and neither is on an index. pip up to 23 looks there for
# shoal if it reads broker/ first.
	@$(PIP_INSTALL) --editable '.[$*]' --editable ./broker
	@touch $@ $(if $(filter test,$*),$(VENV)/for-test-core)
