# make demo    install into .venv, train three methods on scikit-learn's digits, print the table, draw the picture
# make test    install into .venv, then run what CI runs: format, lint, types, all tests
# make check   the same checks without the installation
# make faults  kill and fill the disk at every file operation, damage every file, try odd values: all of tests/faults
# make docs    build the documentation as a site: build/site/index.html
# make bench   time training steps against a straightforward implementation, and against USB where it is installed
# make format  format the code and apply ruff's automatic fixes
# make clean   remove .venv, runs of the demo and everything that was built
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test check faults docs bench format clean

demo: .venv/ready
	$(BIN)/certus compare --data digits --labels 20 --methods supervised,mean-teacher,ft-ccl --seeds 7 --out demo

test: .venv/ready
	@$(MAKE) --no-print-directory check

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal

faults: .venv/ready
	CERTUS_FAULTS=full $(BIN)/python -m pytest -s --durations=0 --durations-min=10 tests/faults

docs: .venv/ready
	$(BIN)/mkdocs build --strict
	@echo "The site: build/site/index.html"

bench: .venv/ready
	$(BIN)/python benchmarks/speed.py --out bench.json

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("certus needs Python 3.11 or newer: make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	@echo "Installing into .venv (a minute or two: torch is large) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv demo runs build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
