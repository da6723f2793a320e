"""Opens an index file in a separate process first, because a damaged file can end the process.

faiss and USearch do not check the numbers in a file: a changed byte makes them read beyond its end,
or allocate more memory than there is.
"""

import importlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from nobackfill.errors import GalleryError, NobackfillError

ROOM = 2**30  # bytes that the process may use beyond twice the file
PATIENCE = 600  # seconds
REFUSED = 3  # exit code of the process if it has printed what is wrong
CODE = "from nobackfill.gallery.stores.trial import main; main()"
DAMAGED = "The file is damaged, or not of this engine: write the index again."


def try_first(engine: str, path: str) -> None:
    """Raises if an index cannot be opened, read and searched in a separate process.

    Args:
        engine: Name of an engine; the module ENGINE_trial next to this one has `try_index`.
        path: Path of the index.
    """
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", CODE, engine, path],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GalleryError(f"Cannot read {path} in {PATIENCE} s. {DAMAGED}") from None
    if done.returncode == REFUSED:
        raise GalleryError(done.stdout.decode(errors="replace").strip())
    if done.returncode != 0:
        raise GalleryError(f"Cannot read {path} as an index of {engine}. {DAMAGED}")


def main() -> None:
    """Opens the index that the arguments name, within a limit of memory."""
    engine, path = sys.argv[1:]
    module = importlib.import_module(f"nobackfill.gallery.stores.{engine}_trial")
    _limit_memory(path)
    try:
        module.try_index(path)
    except NobackfillError as error:
        os.write(1, str(error).encode(errors="backslashreplace"))
        os._exit(REFUSED)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _limit_memory(path: str) -> None:
    """Limits the memory of this process by the size of the file, where the system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = used + 2 * Path(path).stat().st_size + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
