"""
Print each line of a test or of the bench that starts ``shoal`` or its broker past :mod:`rig.shoal`.

One place knows how a process is started, killed and read. Usage: ``python -m scripts.rig_starts``. The exit
code is 1 if there is such a line.
"""

import ast
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

_PROGRAMS = ("shoal", "shoal_broker")


def main() -> int:
    """Check all tests and the bench, and return the exit code."""
    found = [
        f"{file}:{line}: start it by rig/shoal.py: Shoal, run_shoal, serve_broker or serve_gateway"
        for file in sorted([*Path("tests").rglob("*.py"), *Path("bench").rglob("*.py")])
        for line in own_starts(file.read_text(encoding="utf-8"), is_test=file.parts[0] == "tests")
    ]
    print(*found, f"Starts of shoal past the rig: {len(found)}", sep="\n")
    return 1 if found else 0


def own_starts(source: str, *, is_test: bool) -> Iterator[int]:
    """Yield the line of each command ``-m shoal``; and in a test, of each import of ``shoal_command``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple):
            values = [each.value if isinstance(each, ast.Constant) else None for each in node.elts]
            if any(one == "-m" and other in _PROGRAMS for one, other in pairwise(values)):
                yield node.lineno
        elif is_test and isinstance(node, ast.ImportFrom) and node.module == "rig.shoal":
            yield from (node.lineno for each in node.names if each.name == "shoal_command")


if __name__ == "__main__":
    sys.exit(main())
