import subprocess
import sys

WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name == "sentence_transformers" else found(name, *rest)
)
import nobackfill.integrations
try:
    import nobackfill.integrations.sentence_transformers
except ModuleNotFoundError as error:
    print(error)
"""


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert "pip install 'nobackfill[sentence-transformers]'" in result.stdout
