# `make demo` and `make test` do everything on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin

# Two processes share the tests by file; each works in one thread. They keep what they compile, as the
# processes that they start would compile it again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: demo test test-all test-vision check audit constraints sbom clean

demo: .venv/installed
	$(BIN)/nobackfill demo -o demo

# Every formula, command, store and promise once.
test: .venv/installed
	$(PYTEST) -m "not slow"

# The same, and the grids: every engine killed and on a full disk, every benchmark script.
test-all: .venv/installed
	$(PYTEST)

# Those of timm and torchvision, which are installed for it. They stay if torchvision is of the same
# build as torch: another one breaks the imports of timm and transformers. What pytest compiled of them
# is not uninstalled with them, and would pass for a package.
test-vision: .venv/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[vision]'
	$(PYTEST) tests/models tests/training/test_aptm.py
	$(BIN)/python -c 'import timm' || { $(BIN)/python -m pip uninstall --quiet --yes timm torchvision; \
		rm -rf .venv/lib/python*/site-packages/timm .venv/lib/python*/site-packages/torchvision; }

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test,dev]'
	touch $@

# Known advisories about the releases of constraints-all.txt; exits with 3 in tools/advisories.py if
# their database cannot be reached.
audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/python tools/advisories.py

# The releases of the test environment, and a bill of materials of it for a release.
constraints: .venv/installed
	$(BIN)/python tools/installed.py constraints > constraints-all.txt.part
	mv constraints-all.txt.part constraints-all.txt

sbom: .venv/installed
	$(BIN)/python tools/installed.py sbom > sbom.json

clean:
	rm -rf .venv .venv-audit demo sbom.json
