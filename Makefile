# Everything runs in .venv, which is created once. ARGS is passed to the command: make train ARGS="experiment=mnist_28x28".
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: train test test-slow check format bench clean

train: $(INSTALLED)
	$(BIN)/python -m ram.train $(ARGS)

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 $(ARGS)

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	KINETO_LOG_LEVEL=5 $(BIN)/python -m benchmarks.speed $(ARGS)

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --editable ".[dev]"
	touch $@
