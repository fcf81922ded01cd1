# Two commands are enough on a fresh machine: `make run` and `make test`. They make .venv themselves.
# The first Python that runs and is new enough. A name on the path alone proves nothing: version switchers leave shims.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
# Most tests wait for processes: a few at a time fill the cores. A file stays with one runner, and the long files come first.
RUNNERS := -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: run check quick test bench soak site lock audit format clean

run: .venv/.hub
	@$(BIN)/rolecall dev

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 -p hub -p rolecall -p worker_sdk
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin -p hub -p rolecall -p worker_sdk
	$(BIN)/lint-imports
	$(BIN)/python scripts/names.py

# For every commit: what ends within 90 seconds on two cores. Tests that need other tools are skipped where those are missing.
quick: check
	QUICK_EXAMPLES=1 $(BIN)/pytest $(RUNNERS) tests/unit tests/protocol tests/contract tests/flow

test: .venv/.dev
	scripts/install-test-tools
	$(BIN)/pytest $(RUNNERS)

bench: .venv/.dev
	scripts/install-bench-tools
	$(BIN)/python scripts/bench --write

soak: .venv/.dev
	scripts/install-test-tools
	$(BIN)/pytest -m soak --timeout=0
	scripts/mutate --mutants 100 --at-least 85

# From the Markdown of this repository, into site/.
site: .venv/.dev
	@$(BIN)/python scripts/build_site.py

# What a deployment installs, with the hashes of its files; and what is known against it.
lock: .venv/.tools
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --strip-extras --extra hub -o requirements.lock pyproject.toml

audit: .venv/.tools
	@$(BIN)/python scripts/audit.py

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .tools site tests/node/node_modules

.venv/.made:
	@test -n "$(PYTHON)" || { echo "Rolecall needs Python 3.11 or newer, and none is on the path. Name one: make PYTHON=/path/to/python3 …"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

.venv/.hub: .venv/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[hub]'
	@touch $@

.venv/.tools: .venv/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-tools pip-audit
	@touch $@

.venv/.dev: .venv/.hub
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@
