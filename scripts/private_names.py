"""
Print each changed line of a test that names an underscore of another module or object.

A test that does so breaks with each rewrite of the code. Usage: ``python -m scripts.private_names``. The exit
code is 1 if there is such a line. Lines that the branch did not change are not read.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .language.__main__ import base, git

#: The public methods of named tuples.
_PUBLIC = ("_asdict", "_fields", "_make", "_replace")

#: The objects that may have such names: a test's own, and librdkafka's errors, which have no others.
_ALLOWED = ("self", "cls", "super()", "KafkaError")

_HUNK = re.compile(r"@@ .*\+(\d+)(?:,(\d+))? @@")


def main() -> int:
    """Check the changed lines, and return the exit code."""
    found = [
        f"{file}:{line}: {name} is private. Observe the behavior, or make the name public"
        for file, lines in _changed_lines().items()
        for line, name in private_names(Path(file).read_text(encoding="utf-8"))
        if line in lines
    ]
    print(*found, f"Private names: {len(found)} in changed lines of tests", sep="\n")
    return 1 if found else 0


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield each name of a module's source that begins with one underscore and belongs to another object."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in _ALLOWED:
            if _is_private(node.attr):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names if _is_private(each.name))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = (each.value for each in node.args[:2] if isinstance(each, ast.Constant))
            names = (text.rpartition(".")[2] for text in texts if isinstance(text, str))
            yield from ((node.lineno, name) for name in names if _is_private(name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def _changed_lines() -> dict[str, set[int]]:
    changed: dict[str, set[int]] = {}
    for text in git("diff", "-U0", "--diff-filter=d", base(), "--", "tests/*.py"):
        if text.startswith("+++ b/"):
            lines = changed.setdefault(text.removeprefix("+++ b/"), set())
        elif hunk := _HUNK.match(text):
            first = int(hunk[1])
            lines |= set(range(first, first + int(hunk[2] or 1)))
    return changed


if __name__ == "__main__":
    sys.exit(main())
