"""
Print each module with the first line of its docstring, below its package.

Usage: ``python scripts/print_map.py [WORD ...]``, with words that a path or a docstring must have.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = ("src", "broker/src", "rig", "tests", "bench", "scripts")


def documented(top: Path) -> Iterator[tuple[Path, str]]:
    """Yield the modules below a folder with their docstrings; a package stands for its ``__init__.py``."""
    for file in sorted(top.rglob("*.py"), key=lambda file: (file.parent, file.name != "__init__.py", file)):
        documentation = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
        yield file.parent if file.name == "__init__.py" else file, documentation or ""


def main(words: list[str]) -> None:
    """Print the first lines of all modules, or of those with all words."""
    for top in TOPS:
        for path, documentation in documented(ROOT / top):
            name = f"{path.relative_to(ROOT)}{'/' if path.is_dir() else ''}"
            if all(word.lower() in f"{name} {documentation}".lower() for word in words):
                print(f"{name:<58}", documentation.partition("\n")[0], sep="")


if __name__ == "__main__":
    main(sys.argv[1:])
