"""Everything that is too long for the test suite: ``python tests/torture/run.py [PARTS]``.

A part is a module of this folder with its arguments; it prints what it found and ends with 0 if all was well.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS: dict[str, tuple[str, ...]] = {
    "kill": ("kill", "100"),
    "files": ("mutated_files", "--files", "2000"),
}


def main() -> int:
    """Every part, or those that are named; how many failed."""
    failed = []
    for part in sys.argv[1:] or PARTS:
        print(f"--- {part}", flush=True)
        (module, *arguments), start = PARTS[part], time.monotonic()
        command = [sys.executable, "-m", f"tests.torture.{module}", *arguments]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"--- {part}: {'failed' if code else 'well'}, {time.monotonic() - start:.0f} s", flush=True)
        failed += [part] if code else []
    print(f"Failed: {', '.join(failed)}" if failed else "All is well.")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
