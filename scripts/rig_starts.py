"""
Print each line of a test or of the bench that starts ``shoal`` or its broker past :mod:`rig.shoal`.

One place knows how a process is started, killed and read. Usage: ``python -m scripts.rig_starts``. The exit
code is 1 if there is such a line.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

_PROGRAMS = ("shoal", "shoal_broker")

#: The commands that are installed, as the first word of a command or the last part of its path.
_COMMANDS = ("shoal", "shoal-broker", "shoal-demo")

#: Code that runs a command in another process.
_RUNS_COMMAND = re.compile(r"-m (shoal|shoal_broker)\b|(from|import) (shoal|shoal_broker)\.(cli|__main__)\b")


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
    """Yield the line of each command that starts shoal, and of a test's import of ``shoal_command``."""
    tree = ast.parse(source)
    told = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            if _is_command(node.elts):
                yield node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            if _RUNS_COMMAND.search(node.value):
                yield node.lineno
        elif is_test and isinstance(node, ast.ImportFrom) and node.module == "rig.shoal":
            yield from (node.lineno for each in node.names if each.name == "shoal_command")


def _is_command(words: Sequence[ast.expr]) -> bool:
    """Whether words are a command line of shoal: ``-m shoal``, or a path of an installed command first."""
    values = [each.value if isinstance(each, ast.Constant) else None for each in words]
    if any(one == "-m" and other in _PROGRAMS for one, other in pairwise(values)):
        return True
    first = words[0] if words else None
    if isinstance(first, ast.Call) and ast.unparse(first.func) == "str" and first.args:
        first = first.args[0]
    return isinstance(first, ast.BinOp) and _text_of(first.right) in _COMMANDS


def _text_of(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


if __name__ == "__main__":
    sys.exit(main())
