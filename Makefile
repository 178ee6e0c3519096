# Everything happens in a virtual environment of the repository's own, with the versions that
# constraints.txt names. `make` alone lists what there is.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test bench lint format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     train ER and ER-RAR on real digits, three seeds each, and compare them (a minute)"
	@echo "make test     lint, types and all tests"
	@echo "make bench    speed as ratios: the step against bare PyTorch, the augmentation against Pillow"
	@echo "make format   let ruff format and mend"
	@echo "make clean    remove the virtual environment and what was built"

demo: $(VENV)/installed-for-demo
	@$(BIN)/python -m benchmarks.demo

# A thread for each worker: more of them would wait for each other's cores.
test: $(VENV)/installed-for-tests
	@$(MAKE) --no-print-directory lint
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --numprocesses auto

bench: $(VENV)/installed-for-tests
	@$(BIN)/python -m benchmarks.speed

lint: $(VENV)/installed-for-tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/installed-for-tests
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "Encore needs Python 3.11 or newer: name it with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Encore needs Python 3.11 or newer, and $(PYTHON) is older: name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed-for-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Encore into $(VENV)"
	@$(INSTALL) --editable '.[digits]'
	@touch $@

$(VENV)/installed-for-tests: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Encore and what its tests need into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
