# Every target makes its own virtual environment first; a second call finds it ready.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench

demo: .venv/.installed
	$(BIN)/ba3us demo

test: lint
	$(BIN)/python -m pytest --cov=ba3us --cov-report=term:skip-covered --cov-fail-under=90

lint: .venv/.installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

bench: .venv/.installed-dev
	$(BIN)/python benchmarks/step.py

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ba3us needs Python 3.11 or newer; '$(PYTHON)' is missing or older: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
		{ echo "'$(PYTHON) -m venv .venv' failed: install Python's venv module (Debian: python3-venv)." >&2; exit 1; }
	@touch $@

.venv/.installed: pyproject.toml .venv/.made
	@echo "Installing into .venv (a minute or two, once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/.installed-dev: pyproject.toml .venv/.made
	@echo "Installing into .venv (a minute or two, once)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch .venv/.installed $@
