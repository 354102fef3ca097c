"""Only its own module assigns the attributes of a partition: its states rely on it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.mirroring.task import partition

PARTITION = Path(partition.__file__)
SRC = PARTITION.parents[2]


def assigned(tree: ast.AST) -> Iterator[list[str]]:
    """Yield the parts of each ``a.b.c`` that is assigned or deleted; a part that is no name is empty."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            parts = [node.attr]
            of: ast.expr = node.value
            while isinstance(of, (ast.Attribute, ast.Subscript, ast.Call)):
                match of:
                    case ast.Attribute():
                        parts.append(of.attr)
                        of = of.value
                    case ast.Subscript():
                        of = of.value
                    case _:
                        of = of.func
            yield [of.id if isinstance(of, ast.Name) else "", *reversed(parts)]


@functools.cache
def attributes() -> set[str]:
    """Return the attributes that a partition assigns to itself."""
    tree = ast.parse(PARTITION.read_text(encoding="utf-8"))
    (its_class,) = (
        each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "PartitionCopy"
    )
    return {parts[1] for parts in assigned(its_class) if len(parts) == 2 and parts[0] == "self"}


def offences(source: str) -> list[str]:
    """Return the assignments to an attribute of a partition, or through one, as in ``copy.state.current``."""
    its_own = attributes()
    found = []
    for parts in assigned(ast.parse(source)):
        # An object may have an attribute of the same name itself.
        others = parts[2:] if parts[0] == "self" else parts[1:]
        if not its_own.isdisjoint(others):
            found.append(".".join(parts))
    return found


def test_no_other_module_assigns_an_attribute_of_a_partition() -> None:
    assert len(attributes()) > 20
    modules = [path for room in ("mirroring", "mirrormaker", "spark") for path in (SRC / room).rglob("*.py")]
    found = {
        str(path.relative_to(SRC)): offending
        for path in modules
        if path != PARTITION and (offending := offences(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "copy.held_back = None",
        "copy.counters.retries += 1",
        "del self.copy.inherited",
        "copies[0].state.current = 1",
        "first(copies).held_back, x = 1, 2",
        "for copy.newest_ms in times: pass",
    ],
)
def test_assignment_to_a_partition_is_found(source: str) -> None:
    assert offences(source)


@pytest.mark.parametrize("source", ["self.held_back = None", "copy = copies[0]", "position.offset = 1"])
def test_assignment_to_another_object_is_none(source: str) -> None:
    assert not offences(source)
