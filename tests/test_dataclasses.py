"""What holds for every dataclass of the package."""

import dataclasses
import importlib
import pkgutil
from contextlib import suppress
from functools import cache

import nobackfill

ARRAYS = ("Tensor", "ndarray")


CHANGING = {"Candidate", "Faults", "PairReader", "PixelFiles", "Progress"}  # filled step by step


@cache
def dataclasses_of_the_package():
    classes = set()
    for module in pkgutil.walk_packages(nobackfill.__path__, "nobackfill."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an optional package
                parts = vars(importlib.import_module(module.name)).values()
                classes |= {
                    part
                    for part in parts
                    if isinstance(part, type)
                    and dataclasses.is_dataclass(part)
                    and part.__module__ == module.name
                }
    return classes


def test_results_and_settings_cannot_be_changed():
    changing = {
        part.__name__
        for part in dataclasses_of_the_package()
        if not part.__dataclass_params__.frozen and not part.__module__.startswith("nobackfill.cli")
    }
    assert changing == CHANGING


def test_objects_with_arrays_equal_only_themselves_as_comparing_arrays_gives_no_truth_value():
    with_arrays = {
        part
        for part in dataclasses_of_the_package()
        if any(name in str(field.type) for field in dataclasses.fields(part) for name in ARRAYS)
    }
    assert len(with_arrays) > 20
    assert [part for part in with_arrays if part.__eq__ is not object.__eq__] == []
