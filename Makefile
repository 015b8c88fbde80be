# `make demo` and `make test` need nothing but Python 3.11+ and make; both build .venv first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo observe shop test skipped coverage documents package statements libraries stress runtimes harness rest install-peers browser install-browser screenshots scale check format reference docs clusters install-clusters integrations versions interop peers bench chaos fuzz soak poison clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[embedded,watch,fast,pydantic,admin]' --group dev
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m examples.demo

# One request and its jobs in a trace, a scrape, Sentry and the log; it ends by itself.
observe: $(STAMP)
	$(BIN)/python -m examples.observability

# The example application; Ctrl-C stops it.
shop: $(STAMP)
	cd examples/shop && $(abspath $(BIN))/python -m shop $(SHOP_ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.phrases

# Most tests wait for processes and timers, so a few more run at the same time than there are cores. Each process
# has a server of its own.
TEST_PROCESSES ?= 5
PARALLEL = --numprocesses=$(TEST_PROCESSES)
SKIPPED := $(VENV)/skipped-tests

# What has a target of its own, by what it finds; `make test` runs everything else.
DOCUMENTS := tests/docs tests/examples tests/typing
STATEMENTS := tests/plans tests/hostile
LIBRARIES := tests/contrib tests/django_backend
CLUSTERS := tests/contrib/test_dask.py tests/contrib/test_ray.py tests/examples/test_dask_cluster.py
STRESS := tests/chaos tests/fuzz tests/soak
RUNTIMES := tests/interop tests/peers
HARNESS := tests/harness
REST := $(DOCUMENTS) $(STATEMENTS) $(LIBRARIES) $(STRESS) $(HARNESS)
OTHERS := tests/browser $(RUNTIMES) $(REST)
NO_CLUSTERS := $(CLUSTERS:%=--ignore=%)

# The faults of a change to src/.
test: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(OTHERS:%=--ignore=%) --record-skipped=$(SKIPPED) $(PYTEST_ARGS)

# What the last `make test` skipped: after the program that the reason names has been installed.
skipped: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(OTHERS:%=--ignore=%) --only-skipped=$(SKIPPED) $(PYTEST_ARGS)

# The same tests, much slower: which lines and branches they reach.
coverage: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(OTHERS:%=--ignore=%) --record-skipped=$(SKIPPED) \
		--cov --cov-report= --cov-fail-under=89 $(PYTEST_ARGS)

# Faults of what users read and type: code in the documentation, examples, the types of user code, the package.
documents: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(DOCUMENTS) $(NO_CLUSTERS) $(PYTEST_ARGS)

# The wheel and the source archive in empty environments of these Pythons, as far as the machine has them.
PACKAGE_PYTHONS ?= 3.11 3.12 3.13 3.14
package: $(STAMP)
	PACKAGE_PYTHONS='$(PACKAGE_PYTHONS)' $(BIN)/pytest tests/docs/test_package.py $(PYTEST_ARGS)

# Faults of SQL: plans on large tables, and names that a stranger's objects could take over.
statements: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(STATEMENTS) $(PYTEST_ARGS)

# Faults with the newest versions of other libraries; `make integrations` has the oldest ones.
libraries: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(LIBRARIES) $(NO_CLUSTERS) $(PYTEST_ARGS)

# Faults that only chance finds, in a short form; `make chaos`, `make fuzz` and `make soak` are the long ones.
stress: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(STRESS) $(PYTEST_ARGS)

# Faults beside workers of Node and Rust, which npm and cargo get by name, in a short form; `make interop` and `make peers`
# are the long ones.
runtimes: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(RUNTIMES) $(PYTEST_ARGS)

# Faults of the tests: those that hang, depend on time or on programs that a machine may not have.
harness: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(HARNESS) $(PYTEST_ARGS)

# Documents, statements, libraries, stress and harness: one run starts its processes and servers once.
rest: $(STAMP)
	$(BIN)/pytest $(PARALLEL) $(REST) $(NO_CLUSTERS) $(PYTEST_ARGS)

# Node's worker and the Rust peer, so that only one process of `make runtimes` waits for them.
install-peers: $(STAMP)
	$(BIN)/pytest --quiet tests/peers/test_programs.py

# The dashboard in a real browser: the Chromium of the system, or the program that CHROMIUM names.
BROWSER_STAMP := $(VENV)/.browser
BROWSER_PROCESSES ?= 2

$(BROWSER_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --group browser
	@touch $@

install-browser: $(BROWSER_STAMP)

browser: $(BROWSER_STAMP)
	$(BIN)/pytest --numprocesses=$(BROWSER_PROCESSES) tests/browser $(PYTEST_ARGS)

# Each page with lively data, for the documentation; SCREENSHOTS_ARGS=--demo takes those of `graphile-worker demo`.
screenshots: $(BROWSER_STAMP)
	$(BIN)/python -m scripts.screenshots $(SCREENSHOTS_ARGS)

# What each page of the dashboard reads, with a million jobs, and a careful retry of 300,000; `make statements` has fewer.
SCALE_JOBS ?= 1000000
scale: $(STAMP)
	SCALE_JOBS=$(SCALE_JOBS) $(BIN)/pytest --timeout=3600 tests/plans/test_pages.py tests/plans/test_careful_retry.py $(PYTEST_ARGS)

# The reference pages.
reference: $(STAMP)
	$(BIN)/python -m scripts.reference

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Executors on real clusters of this machine: Dask, and Ray where it can be installed in time.
CLUSTERS_STAMP := $(VENV)/.clusters
RAY_LIMIT ?= 180

$(CLUSTERS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --group clusters
	$(if $(shell command -v timeout),timeout $(RAY_LIMIT)) $(BIN)/pip install --quiet --only-binary ray --group ray \
		|| echo "Ray could not be installed; its tests are skipped"
	@touch $@

install-clusters: $(CLUSTERS_STAMP)

clusters: $(CLUSTERS_STAMP)
	$(BIN)/pytest $(CLUSTERS) $(PYTEST_ARGS)

# Minutes: the suites of integrations on the oldest and newest versions of the libraries, in virtual environments of their
# own. A combination is skipped if there is no Python for it. `quick` runs the oldest versions only.
INTEGRATIONS ?= all
integrations: $(STAMP)
	$(BIN)/python -m scripts.integrations $(INTEGRATIONS)

# Half an hour: tests that talk to the server on PostgreSQL 12 to 18, whose programs npm installs by name. VERSIONS='12 14'
# runs some of them, `quick` what depends most on the version, on the oldest one; 'quick 13 17' does so on others.
VERSIONS ?= all
versions: $(STAMP)
	$(BIN)/python -m scripts.versions $(VERSIONS) --pytest-args='$(PYTEST_ARGS)'

interop: $(STAMP)
	GRAPHILE_WORKER_SLOW_INTEROP=1 $(BIN)/pytest --timeout=1800 tests/interop $(PYTEST_ARGS)

# Workers of Python, Node and Rust: who adds, changes and runs, in every direction, then ten seeds of churn with kills. The
# first run builds the Rust worker, which takes minutes.
peers: $(STAMP)
	GRAPHILE_WORKER_PEERS=full $(BIN)/pytest $(PARALLEL) tests/peers $(PYTEST_ARGS)

bench: $(STAMP)
	$(BIN)/graphile-worker bench --embedded $(BENCH_ARGS)

# Tests the checker itself, then runs 20 seeds and 5 with many kept jobs, which takes minutes, and 20 with held batches and
# default settings, which takes half an hour; CHAOS_ARGS='--seed 7' repeats one.
chaos: $(STAMP)
	$(if $(CHAOS_ARGS),,CHAOS_GUARDS=1 $(BIN)/pytest --timeout=1800 tests/chaos/test_checker.py tests/chaos/test_guards.py)
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)
	$(if $(CHAOS_ARGS),,$(BIN)/python -m tests.chaos --kept --seeds 5)
	$(if $(CHAOS_ARGS),,$(BIN)/python -m tests.chaos --held)
	$(if $(CHAOS_ARGS),,$(MAKE) fuzz)

# Minutes: at least this many cases of bad input for each of five entry points; `make stress` runs a short form.
FUZZ_CASES ?= 10000
fuzz: $(STAMP)
	FUZZ_CASES=$(FUZZ_CASES) $(BIN)/pytest --timeout=7200 tests/fuzz --show-capture=no $(PYTEST_ARGS)
	HOSTILE_STEP=1 $(BIN)/pytest --timeout=7200 tests/admin/test_hostile_requests.py $(PYTEST_ARGS)

# Mixed load for this long; fails if memory, connections or tables grow.
SOAK_MINUTES ?= 30
soak: $(STAMP)
	$(BIN)/python -m scripts.soak --minutes $(SOAK_MINUTES) $(SOAK_ARGS)

# Minutes: jobs that kill their worker, with the default settings; POISON_ARGS='--workers 1', or '-- -j 10' for the workers.
poison: $(STAMP)
	$(BIN)/python -m scripts.poison $(POISON_ARGS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* dist build site
