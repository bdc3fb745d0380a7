# Every target makes its own virtual environment first; a second call finds it ready.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
PYTEST := -m pytest -n $(WORKERS)
# every layer that meets another package, by the files that do most of it in the least time
LOWEST_TESTS := tests/data tests/test_estimator.py tests/methods/test_contract.py $(wildcard tests/test_golden*.py) \
	tests/test_extras.py tests/run/test_run.py tests/run/test_predictions.py tests/bench/test_bench_database.py \
	tests/bench/test_bench_study.py tests/bench/test_bench_tables.py tests/bench/test_bench_protocol.py \
	tests/paper/test_figures.py tests/report/test_run_page.py tests/assess tests/nn

SECONDS := 600

.PHONY: demo test test-lowest coverage lint docs bench mutants torture soak fuzz

demo: .venv/.installed
	$(BIN)/ba3us demo

test: lint
	$(BIN)/python $(PYTEST)

coverage: .venv/.installed-dev
	$(BIN)/python $(PYTEST) --cov=ba3us --cov-report=term:skip-covered --cov-fail-under=90

test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python $(PYTEST) $(LOWEST_TESTS) -k "not scikit_learns_suite"

mutants: .venv/.installed-dev
	$(BIN)/python tests/mutants.py $(ONLY)

fuzz: .venv/.installed-dev
	$(BIN)/python $(INSTALL) atheris
	for parser in list spec protocol; do \
		$(BIN)/python -m tests.torture.fuzz_parsers $$parser --seconds $(SECONDS) || exit 1; done

lint: .venv/.installed-dev
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/mypy

torture: .venv/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/run.py $(PARTS)

soak: .venv/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py --minutes $(or $(MINUTES),60)

docs: .venv/.installed-dev
	$(BIN)/mkdocs build --strict

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
	.venv-lowest/bin/python $(INSTALL) -c .venv-lowest/lowest.txt -e . pytest pytest-xdist hypothesis
	@touch $@
