# Every target makes its own virtual environment first; a second call finds it ready.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
# what needs no extra, and every layer that meets another package
LOWEST_TESTS := tests/cli tests/engine tests/bench tests/paper tests/report tests/data tests/test_estimator.py \
	tests/methods/test_contract.py $(wildcard tests/test_golden*.py) tests/test_extras.py

.PHONY: demo test test-lowest lint bench mutants

demo: .venv/.installed
	$(BIN)/ba3us demo

test: lint
	$(BIN)/python -m pytest --cov=ba3us --cov-report=term:skip-covered --cov-fail-under=90

test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest $(LOWEST_TESTS) -k "not scikit_learns_suite"

mutants: .venv/.installed-dev
	$(BIN)/python tests/mutants.py $(ONLY)

lint: .venv/.installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

bench: .venv/.installed-dev
	$(BIN)/python benchmarks/step.py

%/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ba3us needs Python 3.11 or newer; '$(PYTHON)' is missing or older: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $* || \
		{ echo "'$(PYTHON) -m venv $*' failed: install Python's venv module (Debian: python3-venv)." >&2; exit 1; }
	@touch $@

.venv/.installed: pyproject.toml .venv/.made
	@echo "Installing into .venv (a minute or two, once)"
	$(BIN)/python $(INSTALL) -e ".[demo]"
	@touch $@

.venv/.installed-dev: pyproject.toml .venv/.made
	@echo "Installing into .venv (a minute or two, once)"
	$(BIN)/python $(INSTALL) -e ".[dev]"
	@touch .venv/.installed $@

.venv-lowest/.installed: pyproject.toml .venv-lowest/.made
	@echo "Installing the lowest versions, without extras, into .venv-lowest (a minute or two, once)"
	$(PYTHON) tests/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python $(INSTALL) -c .venv-lowest/lowest.txt -e . pytest hypothesis
	@touch $@
