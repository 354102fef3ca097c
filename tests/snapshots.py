"""
The texts that a verb prints, each once in ``snapshots/VERB.txt`` beside its tests.

A test compares a text as a whole with the one of its name. If you change a sentence on purpose, run
``pytest tests/cli --rewrite-snapshots`` and read the difference. Names stand for addresses, paths and times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

__all__ = ["Texts", "add_option", "texts_of"]

_REWRITE = "--rewrite-snapshots"
_HEADING = "== "

_VARYING = (
    (re.compile(r"(?:127\.0\.0\.1|localhost):\d{2,}"), "HOST:PORT"),
    (re.compile(r"[\d.]+ MB read in [\d.]+ s"), "SIZE read in TIME"),
    (re.compile(r"0x[0-9a-f]{8}\b"), "CRC"),
    (re.compile(r"[\d,]+ s ago"), "TIME ago"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC)?"), "TIME"),
)


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(_REWRITE, action="store_true", help="write the texts of the tests that run")


class Texts:
    """Compares the texts of one test, in the order of the calls."""

    def __init__(self, name: str, recorded: dict[str, str], rewrites: bool, directory: Path) -> None:
        self._name, self._recorded, self._rewrites = name, recorded, rewrites
        self._directory = str(directory)
        self.found: dict[str, str] = {}

    def __call__(self, text: str | Iterable[str]) -> None:
        """Compare a text, or lines of one."""
        whole = text if isinstance(text, str) else "\n".join(text)
        number = len(self.found) + 1
        key = self._name if number == 1 else f"{self._name} {number}"
        self.found[key] = found = self._without_varying(whole)
        if not self._rewrites:
            assert found == self._recorded.get(key), f"if this is as it should be, run pytest with {_REWRITE}"

    def _without_varying(self, text: str) -> str:
        text = text.replace(self._directory, "DIRECTORY")
        for pattern, name in _VARYING:
            text = pattern.sub(name, text)
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        assert not any(line.startswith(_HEADING) for line in lines)
        return "\n".join(lines)


def texts_of(request: pytest.FixtureRequest, directory: Path) -> Iterator[Texts]:
    """Yield the texts of a test, and write them at its end if the command line demands it."""
    file = request.path.parent / "snapshots" / f"{request.path.stem.removeprefix('test_')}.txt"
    recorded = _read(file)
    rewrites = request.config.getoption(_REWRITE)
    texts = Texts(request.node.name, recorded, rewrites, directory)
    yield texts
    if rewrites:
        tests = {name for name in dir(request.module) if name.startswith("test_")}
        others = {
            key: text
            for key, text in recorded.items()
            if key.partition(" ")[0] != request.node.name and re.split(r"[\[ ]", key)[0] in tests
        }
        _write(file, others | texts.found)


def _read(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    sections = ("\n" + file.read_text(encoding="utf-8")).split(f"\n{_HEADING}")[1:]
    return {key: text.strip("\n") for key, _, text in (each.partition("\n") for each in sections)}


def _write(file: Path, texts: dict[str, str]) -> None:
    file.parent.mkdir(exist_ok=True)
    sections = (f"{_HEADING}{key}\n{text}\n" for key, text in sorted(texts.items()))
    file.write_text("\n".join(sections), encoding="utf-8")
