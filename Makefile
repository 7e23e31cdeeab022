# make demo   the whole pipeline on the embedded default; the report is runs/demo/report.html
# make test   the tests
# make check  style, types, import rules
# make bench  speed and memory
#
# Each target first installs everything into .venv (once). It needs Python 3.11 or newer, git and make:
#   make test PYTHON=python3.12      another interpreter
#   make test PYTEST_ARGS='-k web'   more arguments for pytest
#   make demo DEMO_ARGS='--quick'    more arguments for the demo

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: demo test check bench clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	$(BIN)/proofhound demo --out runs/demo $(DEMO_ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/python -m scripts.bench

clean:
	rm -rf $(VENV) build *.egg-info

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,dev]'
	touch $@
