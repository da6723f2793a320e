"""Objects that hold arrays are equal only to themselves: comparing arrays gives no truth value."""

import dataclasses
import importlib
import pkgutil
from contextlib import suppress

import nobackfill

ARRAYS = ("Tensor", "ndarray")


def dataclasses_of_the_package():
    for module in pkgutil.walk_packages(nobackfill.__path__, "nobackfill."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an optional package
                parts = vars(importlib.import_module(module.name)).values()
                yield from (
                    part
                    for part in parts
                    if isinstance(part, type)
                    and dataclasses.is_dataclass(part)
                    and part.__module__ == module.name
                )


def test_dataclasses_with_arrays_are_compared_by_identity():
    with_arrays = {
        part
        for part in dataclasses_of_the_package()
        if any(name in str(field.type) for field in dataclasses.fields(part) for name in ARRAYS)
    }
    assert len(with_arrays) > 20
    assert [part for part in with_arrays if part.__eq__ is not object.__eq__] == []
