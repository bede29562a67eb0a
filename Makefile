# Each target does all its own set-up, in .venv, as root or not.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
# Of the tests, on two cores: half of their time they wait for sockets and for Postgres (380 s with two, 344 with three).
WORKERS ?= 3

# A lock names all that it needs, hash by hash: pip has nothing to resolve. Python compiles what is imported when it is; to compile
# everything would take pip half of its time.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
LOCKED := $(INSTALL) --no-deps --require-hashes -r

.PHONY: serve dev test test-quick test-all coverage check lint-deploy format docs lock bench clean

serve: $(RUN)
	@exec $(BIN)/mneme serve

# What tests, checks and examples need, too.
dev: $(DEV)

# Without bytecode each worker compiles every test again (15 s), and each server that a test starts all of the application.
unexport PYTHONDONTWRITEBYTECODE

# A worker that has nothing left takes over half of another's: a first share of slow tests else outlasts all others.
TESTS := $(BIN)/pytest -n $(WORKERS) --dist worksteal

test: $(DEV)
	$(TESTS) -m "not heavy"

# What needs no server and no database.
test-quick: $(DEV)
	$(TESTS) -m "not heavy" tests/unit

# Branch coverage by the tests that run in this process. Needs pytest-cov, which no lock names: `.venv/bin/pip install pytest-cov`.
coverage: $(DEV)
	$(TESTS) -m "not heavy" --cov=app --cov=mneme_replay --cov-branch --cov-report=term:skip-covered tests/unit tests/integration

# The heavy set too, and properties with more examples, other ones each time: long chaos runs, a real vLLM (MNEME_TEST_VLLM_URL), the real MiniLM (the extra
# `minilm` installed), peers, fresh installations, PgBouncer
# (1.21+, or MNEME_TEST_PGBOUNCER), the commands of docs/how-to/operations.md, and the clients of docs/how-to/clients.md, which it installs.
test-all: $(DEV)
	$(TESTS) --hypothesis-profile large

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Everything in deploy/. The linters that are packages have an environment of their own; docker, kubectl and promtool are used where
# they are installed.
LINT := .venv-lint
lint-deploy: $(LINT)/.installed
	@LINT=$(CURDIR)/$(LINT)/bin sh deploy/lint.sh

$(LINT)/.installed: deploy/lint.lock
	$(PYTHON) -m venv $(LINT)
	$(LINT)/bin/python $(LOCKED) deploy/lint.lock
	@touch $@

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# docs/generated/api.md, docs/generated/commands.md and docs/generated/metrics.md; a test fails where one is stale.
docs: $(DEV)
	$(BIN)/python -m tools.reference

# All measurements, in turn, some ninety minutes; `make bench BENCH=--quick`: ten, for the shape. Each also runs alone:
# .venv/bin/python -m loadtests.bench, .scale, .wal, .prefix, .replaying, .resolving or .soak.
bench: $(DEV)
	$(BIN)/python -m loadtests $(BENCH)

# Only needed after editing the dependencies in pyproject.toml; needs uv. The developers' lock is the other, and more.
LOCKING := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock:
	$(LOCKING) --group build pyproject.toml -o requirements.lock
	$(LOCKING) --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	$(LOCKING) deploy/lint.in -o deploy/lint.lock

# What it takes to serve; then, in the same place, what it takes to test and check.
$(RUN): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(LOCKED) requirements.lock
	$(BIN)/python $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.lock $(RUN)
	$(BIN)/python $(LOCKED) requirements-dev.lock
	@touch $@

clean:
	rm -rf $(VENV) $(LINT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
