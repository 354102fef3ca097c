"""
Print each module with the first line of its docstring, below its package.

Usage: ``python scripts/print_map.py [WORD ...]``, with words that the path, the docstring, or the name of a
function or class of the module must have.
"""

import ast
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = ("src", "broker/src", "rig", "tests", "bench", "scripts")

_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def documented(top: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield the modules below a folder with their docstrings and names; a package is its ``__init__.py``."""
    for file in sorted(top.rglob("*.py"), key=lambda file: (file.parent, file.name != "__init__.py", file)):
        module = ast.parse(file.read_text(encoding="utf-8"))
        defined = (each.name for each in ast.walk(module) if isinstance(each, _DEFINITIONS))
        yield (
            file.parent if file.name == "__init__.py" else file,
            ast.get_docstring(module) or "",
            " ".join(defined),
        )


def main(words: list[str]) -> None:
    """Print the first lines of all modules, or of those with all words."""
    for top in TOPS:
        for path, documentation, names in documented(ROOT / top):
            name = f"{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"
            if all(word.lower() in f"{name} {documentation} {names}".lower() for word in words):
                print(f"{name:<58}", documentation.partition("\n")[0], sep="")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that `make map | head` ends without a traceback
    main(sys.argv[1:])
