# Everything below works with Python 3.11+, pip, git and make; `make test` in a fresh clone makes .venv itself.
# Another Python: `make test PYTHON=python3.13`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# numpy's BLAS starts a thread a core when it is imported; nothing here gains from it.
export OPENBLAS_NUM_THREADS = 1

.PHONY: help check test test-all faults demo sbom browser shots bench format docs site recording clean
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */make \1|/' | column -t -s '|'

check: $(INSTALLED)  ## Lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py
	$(BIN)/lint-imports --no-logo
	$(BIN)/lint-imports --no-logo --no-cache --config .importlinter-cycles

test: check  ## The checks, and the tests of units, of the command line and of faults (a few)
	$(BIN)/pytest -n 2 --dist worksteal tests/house tests/unit tests/cli tests/faults

test-all: check  ## Everything that CI runs: the checks and every test
	$(BIN)/pytest -n 2 --dist worksteal

faults: $(INSTALLED)  ## The fault laboratory in full: every command killed at every call; takes hours
	NUGGET_FAULTS=all $(BIN)/pytest -n 2 --dist worksteal tests/faults

demo: $(INSTALLED)  ## From a bundled session to an answer over MCP, and by pull request, in a temporary HOME
	$(BIN)/python examples/demo

browser: $(INSTALLED)  ## The page in real browsers: Chromium and Firefox, those of them that are there (apt install chromium-headless-shell firefox-esr)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/pytest tests/browser

shots: $(INSTALLED)  ## The pictures of the page that README shows
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/python scripts/shots.py

recording: $(INSTALLED)  ## The recording of a terminal that README shows
	$(BIN)/python scripts/recording.py

bench: $(INSTALLED)  ## The benchmarks, as ratios against the bare tools
	@for program in benchmarks/*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

format: $(INSTALLED)  ## Format the code, and fix what ruff can fix
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## Rewrite the reference pages, the man page and the completions from the code
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/manual.py

site: $(INSTALLED)  ## The documentation as a site, in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group site
	NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict --quiet

sbom: $(INSTALLED)  ## The software bill of materials of a release, in dist/nugget.cdx.json
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group release
	rm -rf build/release && $(PYTHON) -m venv --without-pip build/release
	$(BIN)/python -m pip --python build/release/bin/python install --quiet --disable-pip-version-check .
	mkdir -p dist
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o dist/nugget.cdx.json build/release

clean:  ## Remove what was made here
	rm -rf $(VENV) .models dist build

# Dependency groups (pip install --group) came with pip 25.1. uv, where it is there, does the same faster.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nugget needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@
