"""Looks for known advisories about the releases of constraints-all.txt, by pip-audit.

    python tools/advisories.py [constraints-all.txt]

Exit codes: 0 no advisory, 1 advisories, 3 not looked up (no database of advisories was reached).
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NONE, SOME, UNKNOWN = 0, 1, 3


def main() -> int:
    """Prints the advisories; returns the exit code."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "constraints-all.txt")
    pins = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pins.txt")
        file.write_text("\n".join(pins))
        audit = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "-r", str(file)]
        done = subprocess.run([*audit, "-f", "json"], capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"Not looked up: {(done.stderr.strip().splitlines() or ['no answer'])[-1][:300]}")
        return UNKNOWN
    return tell(found)


def tell(found: Sequence[dict[str, Any]]) -> int:
    """Prints what was found of each package; returns the exit code.

    Example:
        >>> tell([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "404"}])
        Not looked up: 1 of 2 packages, such as b.
        3
        >>> tell([{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}])
        a 1: X-1, mended in 2
        1
    """
    for part in found:
        for advisory in part.get("vulns", []):
            mended = ", ".join(advisory["fix_versions"]) or "no release yet"
            print(f"{part['name']} {part['version']}: {advisory['id']}, mended in {mended}")
    skipped = [part["name"] for part in found if "skip_reason" in part]
    if skipped:
        print(f"Not looked up: {len(skipped)} of {len(found)} packages, such as {skipped[0]}.")
    if any(part.get("vulns") for part in found):
        return SOME
    return UNKNOWN if skipped or not found else NONE


if __name__ == "__main__":
    sys.exit(main())
