"""A torchvision whose compiled operators are missing can be imported, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest
import torch

from nobackfill.models import torchvision_operators

RELEASE = torch.__version__.partition("+")[0]
PACKAGE = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
torch.library.register_fake("torchvision::nms")(lambda dets, scores, iou_threshold: dets)
torch.library.register_fake("torchvision::qnms")(lambda dets, scores, iou_threshold: dets)
"""


@pytest.fixture
def installed(tmp_path):
    """Installs a torchvision of one module; returns a function that runs code beside it."""

    def install(code, *, torch_release=RELEASE):
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text(code)
        info = tmp_path / "torchvision-9.9.dist-info"
        info.mkdir()
        wanted = f"Name: torchvision\nVersion: 9.9\nRequires-Dist: torch (=={torch_release})\n"
        (info / "METADATA").write_text(wanted)

        def run(script):
            script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{textwrap.dedent(script)}"
            return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

        return run

    return install


IMPORT = """
    from nobackfill.models.base import optional_package
    print(optional_package("torchvision", extra="vision").__name__)
"""


def test_operators_that_a_build_lacks_are_declared(installed):
    run = installed(PACKAGE)
    assert "nms does not exist" in run("import torchvision").stderr
    found = run(IMPORT)
    assert found.stdout == "torchvision\n", found.stderr


def test_a_torchvision_for_another_torch_is_left_alone(installed):
    found = installed(PACKAGE, torch_release="1.0.0")(IMPORT)
    assert "operator torchvision::nms does not exist" in found.stderr
    assert "Install the release that belongs to torch" in found.stderr


def test_another_error_is_left_to_who_needs_the_package(installed):
    found = installed("raise RuntimeError('out of memory')")(IMPORT)
    assert "torchvision is installed, but cannot be imported here: out of memory" in found.stderr


def test_nothing_is_declared_for_a_torchvision_that_works(installed):
    found = installed("works = True")(
        """
        import torch
        from nobackfill.models.torchvision_operators import import_torchvision_here
        import_torchvision_here()
        print(hasattr(torch.ops.torchvision, "nms"), sys.modules["torchvision"].works)
        """
    )
    assert found.stdout == "False True\n", found.stderr


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [
        (["torch==2.13.0"], True),
        (["torch (==2.13.0)", "numpy"], True),
        (["torch==2.13.1"], False),
        (["torch>=2"], False),
        ([], False),
        (None, False),
    ],
)
def test_builds_of_one_release_fit(requirements, fits):
    found = torchvision_operators.is_made_for("2.13.0+cpu", requirements=lambda name: requirements)
    assert found is fits
