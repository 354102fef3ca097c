"""A Python that cannot import some packages, like that of an installation without the extra ``spark``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["environment_without"]


def environment_without(directory: Path, *packages: str) -> dict[str, str]:
    """
    Return the environment of a Python in which ``import`` finds none of these packages.

    Python imports ``sitecustomize`` from the directory as it starts; a module of None cannot be imported.
    """
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in packages)]
    (directory / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return {"PYTHONPATH": str(directory)}
