"""The sentences that a mirror says of partitions and topics, as they stand in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import shoal

__all__ = ["ANYTHING", "sentences"]

ANYTHING = "…"
"""Stands where a sentence has a name or a number."""

_SHOAL = Path(shoal.__file__).parent
_MIRRORING = _SHOAL / "mirroring"

#: Functions that are called with a sentence: warnings, reasons to wait, and reasons to stop.
_CALLED = frozenset(
    {"ConfigFinding", "Incident", "PartitionStopped", "UnsupportedBatch", "_meet_loss", "_met"}
    | {"_on_warning", "_refuse", "_stop", "_warn", "warn", "append", "stop", "suspect", "wait"}
    | {"goes_on_after", "stop_for"}
)

#: The function that takes the finding before the remedy.
_WITH_ADVICE = "_meet"

#: Variables in which a sentence is composed.
_ASSIGNED = frozenset({"failure", "reason", "what", "why"})

#: Shorter ones are parts of others, or no sentences.
_SHORTEST = 15


def sentences() -> set[str]:
    """Return each sentence, with :data:`ANYTHING` for inserted values."""
    rooms = (
        _MIRRORING,
        *(_MIRRORING / each for each in ("driver", "task", "task/resume", "prepare", "model")),
    )
    files = [_SHOAL / "client" / "scan.py", _SHOAL / "spark" / "engine.py"]
    files += [_MIRRORING / "monitoring" / "metrics.py", _MIRRORING / "sync" / "follower.py"]
    files += [file for room in rooms for file in room.glob("*.py")]
    files.remove(_MIRRORING / "task" / "write_rows.py")  # no part of a mirror
    return {text for file in files for text in _in(ast.parse(file.read_text(encoding="utf-8")))}


def _in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _CALLED:
            yield from _texts(node.args)
        elif isinstance(node, ast.Call) and _name(node.func) == _WITH_ADVICE:
            yield from _texts(node.args[1:2])
        elif isinstance(node, ast.Assign) and any(_name(each) in _ASSIGNED for each in node.targets):
            yield from _texts([node.value])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith(
            ("deleted_reason", "waits_for", "warning")
        ):
            yield from _texts([each.value for each in ast.walk(node) if isinstance(each, ast.Return)])
        elif isinstance(node, ast.AugAssign) and _name(node.target) == "_warnings":
            yield from _texts(ast.iter_child_nodes(node.value))


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _texts(nodes: Iterable[ast.AST | None]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.IfExp):
            yield from _texts([node.body, node.orelse])
            continue
        text = _text(node)
        if len(text) >= _SHORTEST and " " in text:
            yield text


def _text(node: ast.AST | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else ANYTHING for each in node.values)
    return ""
