# `make serve` and `make test` do all their own set-up, in .venv, as root or not.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: serve test test-all check lint-deploy format docs lock bench clean

serve: $(STAMP)
	@exec $(BIN)/mneme serve

# A worker that has nothing left takes over half of another's: a first share of slow tests else outlasts all others.
TESTS := $(BIN)/pytest -n $(WORKERS) --dist worksteal

test: $(STAMP)
	$(TESTS) -m "not heavy"

# The heavy set too: long chaos runs, a real vLLM (MNEME_TEST_VLLM_URL), the real MiniLM (its package installed, or
# MNEME_TEST_MINILM_FOLDER), peers, fresh installations, PgBouncer
# (1.21+, or MNEME_TEST_PGBOUNCER), the commands of docs/operations.md, and the clients of docs/clients.md, which it installs.
test-all: $(STAMP)
	$(TESTS)

check: $(STAMP)
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
	$(LINT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/lint.lock
	@touch $@

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# docs/api.md, docs/commands.md and docs/metrics.md; a test fails where one is stale.
docs: $(STAMP)
	$(BIN)/python -m tools.reference

# All measurements, in turn, some ninety minutes; `make bench BENCH=--quick`: ten, for the shape. Each also runs alone:
# .venv/bin/python -m loadtests.bench, .scale, .wal, .prefix, .replaying, .resolving or .soak.
bench: $(STAMP)
	$(BIN)/python -m loadtests $(BENCH)

# Only needed after editing the dependencies in pyproject.toml; needs uv.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --group dev pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate deploy/lint.in -o deploy/lint.lock

# One install for running and for testing: the set is small and always the same, hash by hash.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf $(VENV) $(LINT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
