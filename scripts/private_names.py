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
    *("_active_spark_context", "_jbroadcast", "_jsc", "_render_traceback_", "_struct"),
}

#: The objects that may have such names: a test's own, and librdkafka's errors.
_ALLOWED = ("self", "cls", "super()", "KafkaError")

#: The last words of calls whose arguments name an attribute: of Python, of monkeypatch, and `patch.object`.
_BY_NAME = {
    *("getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"),
    *("patch", "object", "multiple"),
}


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
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _BY_NAME:
            names = list(_named_in(node))
        else:
            continue
        yield from ((node.lineno, name) for name in names if _is_private(name))


def _named_in(call: ast.Call) -> Iterator[str]:
    """Yield the names in a call that reads or replaces what its arguments name, as texts or as keywords."""
    if call.args and ast.unparse(call.args[0]) in _ALLOWED:
        return
    for value in (*call.args[:2], *(each.value for each in call.keywords)):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from value.value.split(".")
    yield from (each.arg for each in call.keywords if each.arg)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _OTHERS


if __name__ == "__main__":
    sys.exit(main())
