import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import nobackfill as nb

NAMES = """
    CompatibilityMatrix CompatibleHead METHODS NeighborPerturbation OldSpace OptimizedPerturbation
    Vectors Verdict __version__ as_vectors assess assess_rankings class_means compare
    compare_rankings compatibility compatibility_matrix evaluate judge load_vectors nearest p_scores
    prototype_loss retrieval
""".split()


def test_the_public_names_are_these():
    assert sorted(nb.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(nb, name) is not None


def test_evaluate_is_a_function_whatever_was_imported_before():
    import nobackfill.evaluation.evaluate  # noqa: F401

    assert callable(nb.evaluate)


def test_every_name_that_a_room_offers_is_there():
    offered = 0
    for path in Path(nb.__file__).parent.glob("*/__init__.py"):
        room = importlib.import_module(f"nobackfill.{path.parent.name}")
        for name in getattr(room, "__all__", []):
            part = getattr(room, name)
            assert getattr(part, "__name__", name) == name
            offered += 1
    assert offered > 10


@pytest.mark.parametrize("room", ["", ".data", ".head", ".vectors"])
def test_a_name_that_does_not_exist_is_an_attribute_error(room):
    module = importlib.import_module(f"nobackfill{room}")
    assert not hasattr(module, "nothing")
    with pytest.raises(AttributeError, match=f"'nobackfill{room}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_the_package_alone_loads_no_torch():
    code = "import sys, nobackfill; assert 'torch' not in sys.modules; nobackfill.METHODS; "
    code += "assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
