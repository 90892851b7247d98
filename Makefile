# make demo: set up, train three methods on scikit-learn's digits, show the table and the picture.
# make test: set up, then format, lint, types and all tests, as CI does.
# make bench: set up, then time training steps against a straightforward implementation and, where installed, USB.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check bench format clean

demo: .venv/ready
	$(BIN)/certus compare --data digits --labels 20 --methods supervised,mean-teacher,ft-ccl --seeds 7 --out demo

test: .venv/ready
	@$(MAKE) --no-print-directory check

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal

bench: .venv/ready
	$(BIN)/python benchmarks/speed.py --out bench.json

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("certus needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up .venv (a minute or two; torch is large) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo runs build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
