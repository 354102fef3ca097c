"""
Print each line of a test that names an underscore of another module or object.

A test that does so breaks with each rewrite of the code. Usage: ``python -m scripts.private_names``. The exit
code is 1 if there is such a line.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

#: Names of other people's code that begin with an underscore, and have no public twin: of named tuples,
#: librdkafka, `os`, botocore, PySpark, IPython and kafka-python.
_OTHERS = {
    *("_asdict", "_fields", "_make", "_replace", "_exit", "_make_api_call"),
    *("_jbroadcast", "_jsc", "_render_traceback_", "_struct"),
}

#: The objects that may have such names: a test's own, and librdkafka's errors.
_ALLOWED = ("self", "cls", "super()", "KafkaError")


def main() -> int:
    """Check all tests, and return the exit code."""
    found = [
        f"{file}:{line}: {name} is private. Observe the behavior, or make the name public"
        for file in sorted(Path("tests").rglob("*.py"))
        for line, name in private_names(file.read_text(encoding="utf-8"))
    ]
    print(*found, f"Private names in tests: {len(found)}", sep="\n")
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
    return name.startswith("_") and not name.startswith("__") and name not in _OTHERS


if __name__ == "__main__":
    sys.exit(main())
