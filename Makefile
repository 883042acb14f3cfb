# Everything a developer or a CI runner needs: Python >= 3.11, make and a package index. `make help` lists the targets.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help install format lint types test peer clients autobahn bench fuzz torture demo run wheel docs clean

help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv && $(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]" && touch $@

install: $(READY) ## Make .venv and install the project with its development tools

format: $(READY) ## Rewrite the code in the house format
	$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format .

lint: $(READY) ## Check style, format and import rules
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

types: $(READY) ## Check types of packages and tests
	$(BIN)/mypy

test: lint types ## Check style, imports and types, then run the tests
	$(BIN)/pytest -m "not bench and not torture" --ignore=tests/peer --ignore=tests/real_clients --ignore=tests/autobahn -n auto

peer: $(READY) ## Live random lives beside the real Codex and swap logs with it (UNSPOOL_PEER_CODEX, or codex on the PATH)
	$(BIN)/pytest tests/peer -rs

clients: $(READY) ## Use the daemon through six real clients, which are installed into .clients/ (needs npm and tmux for some)
	$(BIN)/pytest tests/real_clients -rs

autobahn: $(READY) ## Let the Autobahn Testsuite loose on the WebSocket listener (needs Python 2.7; UNSPOOL_AUTOBAHN_ALL=1: every case)
	$(BIN)/pytest tests/autobahn -rs -s

bench: $(READY) ## Run the timing runs (they never decide whether something is right)
	$(BIN)/pytest -m bench tests/bench -s

fuzz: $(READY) ## Live thousands of random thread lives (UNSPOOL_FUZZ_LIVES), then run the property tests with more examples
	UNSPOOL_FUZZ_LIVES=$${UNSPOOL_FUZZ_LIVES:-2000} $(BIN)/pytest tests/state/test_lives.py -n auto
	$(BIN)/pytest -m "hypothesis and not bench and not torture" --hypothesis-profile=fuzz -n auto
	UNSPOOL_BURST=20000 $(BIN)/pytest tests/bugs/test_group_k_protocol.py
	UNSPOOL_ALL_PREFIXES=1 $(BIN)/pytest tests/damage/test_prefixes.py tests/state/test_races.py --hypothesis-profile=fuzz -n auto

torture: $(READY) ## Let hundreds of clients lose their connections while the daemon is killed (UNSPOOL_TORTURE_SEED, _CLIENTS, _SECONDS, ...)
	$(BIN)/pytest tests/torture -m torture -s

demo: $(READY) ## Show the main job from start to end; no key needed
	$(BIN)/unspool demo

run: $(READY) ## Start the daemon on ws://127.0.0.1 with friendly output
	$(BIN)/unspool serve

wheel: $(READY) ## Build the wheel into dist/, install it into an environment of its own and start its command
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist . && rm -rf build/wheel && $(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install -q --disable-pip-version-check dist/unspool-*.whl && build/wheel/bin/unspool --version

docs: $(READY) ## Write the generated parts of docs/ anew
	$(BIN)/python docs/generate.py

clean: ## Remove .venv, the real clients and caches
	rm -rf .venv .clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
