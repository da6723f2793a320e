"""`make test` kills and fills up one engine of each kind; `make test-all` every engine."""

import pytest

# Engines that `make test` keeps in the tests of faults.
KEPT = {"test_full_disk.py": {"flat"}, "test_killed.py": {"faiss", "qdrant"}}


def pytest_collection_modifyitems(items):
    for item in items:
        kept = KEPT.get(item.path.name)
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        engine = next((parameters[name] for name in ("line", "disk") if name in parameters), None)
        if kept and engine is not None and engine not in kept:
            item.add_marker(pytest.mark.slow)
