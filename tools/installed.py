"""What is installed: as constraints for pip, and as a bill of materials (CycloneDX).

python tools/installed.py constraints > constraints-all.txt
python tools/installed.py sbom > sbom.json
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions

OWN = "nobackfill"
TOOLS = ("pip", "setuptools", "wheel")  # of the environment, not of the package
HEADER = """\
# The releases that the tests ran on, for a reproducible install of all extras:
# pip install -c constraints-all.txt -e '.[test,dev]'
# Made by `make constraints`; constraints.txt has only what every install needs."""


def installed() -> list[Distribution]:
    """Every installed package but pip's own, by name."""
    found = {name_of(part): part for part in distributions() if part.metadata["Name"]}
    return [found[name] for name in sorted(found) if name not in TOOLS]


def name_of(part: Distribution) -> str:
    """The name of a package as indexes spell it.

    Example:
        >>> from types import SimpleNamespace
        >>> name_of(SimpleNamespace(metadata={"Name": "MarkupSafe_x"}))
        'markupsafe-x'
    """
    return re.sub(r"[-_.]+", "-", part.metadata["Name"]).lower()


def release(part: Distribution) -> str:
    """The version without the name of a build, such as `+cpu`."""
    return part.version.partition("+")[0]


def constraints(parts: Iterable[Distribution], always: str) -> Iterator[str]:
    """Lines for pip: first those that hold for every install, then all others."""
    pins = [line for line in always.splitlines() if line and not line.startswith("#")]
    named = {line.partition("==")[0] for line in pins}
    yield HEADER
    others = (f"{name_of(p)}=={release(p)}" for p in parts if name_of(p) not in {OWN, *named})
    yield from sorted([*pins, *others])


def sbom(parts: Iterable[Distribution]) -> dict[str, object]:
    """The packages as a document of CycloneDX 1.5."""
    own, components = {}, []
    for part in parts:
        name, version = name_of(part), release(part)
        component = {"type": "library", "name": name, "version": version,
                     "purl": f"pkg:pypi/{name}@{version}", "bom-ref": f"{name}@{version}"}  # fmt: skip
        if license := part.metadata["License-Expression"]:
            component["licenses"] = [{"expression": license}]
        own, components = (
            (component, components) if name == OWN else (own, [*components, component])
        )
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": own}, "components": components}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "sbom":
        print(json.dumps(sbom(installed()), indent=1))
    else:
        with open("constraints.txt", encoding="utf-8") as file:
            print("\n".join(constraints(installed(), file.read())))
