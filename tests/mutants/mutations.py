"""
The mutations of a module: one change to a comparison, ``and``, ``or``, ``not``, ``+`` or ``-``.

A comparison of order changes at its bound alone (``<`` and ``<=``), since nearly every test catches its
opposite. One of a duration or of a moment of the clock becomes its opposite: no test meets the bound of a
clock. Two kinds are left out: ``assert``, which states what the code has ensured, and ``+`` between texts
or lists, whose ``-`` is a TypeError.
"""

from __future__ import annotations

import ast
from typing import NamedTuple, TypeVar

__all__ = ["Site", "mutate", "sites"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
_COMPARISONS |= {other: one for one, other in _COMPARISONS.items()}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.Gt: ast.LtE}
_OPPOSITES |= {other: one for one, other in _OPPOSITES.items()}

#: The ends of names of durations in seconds, and of moments of the clock.
_TIMES = ("_s", "_at", "monotonic")
_SUMS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_LINKS: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}

_Node = TypeVar("_Node", ast.expr, ast.stmt)


class Site(NamedTuple):
    """
    A place in a module that can be mutated.

    Attributes:
        number: Its number among the places of the module.
        line: The line of its expression, from 1.
        before: The expression as it is.
        after: The expression mutated.
        within: The function that has it, with its class: an equal expression elsewhere is another place.

    """

    number: int
    line: int
    before: str
    after: str
    within: str


def sites(source: str) -> list[Site]:
    """Return all places of a module's source that can be mutated."""
    flipper = _Flipper(None)
    flipper.visit(ast.parse(source))
    return flipper.found


def mutate(source: str, number: int) -> str:
    """Return the module's source with one place mutated; it has no comments."""
    return ast.unparse(_Flipper(number).visit(ast.parse(source)))


class _Flipper(ast.NodeTransformer):
    """A walk over a module that numbers the places, and mutates one of them."""

    def __init__(self, wanted: int | None) -> None:
        self.found: list[Site] = []
        self._wanted = wanted
        self._within: list[str] = []

    def _offer(self, node: _Node, flipped: ast.expr | ast.stmt) -> ast.expr | ast.stmt:
        number = len(self.found)
        within = ".".join(self._within)
        self.found.append(Site(number, node.lineno, ast.unparse(node), ast.unparse(flipped), within))
        return flipped if number == self._wanted else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_named(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_named(node)

    def _visit_named(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        result: ast.AST = node
        for place, operator in enumerate(node.ops):
            operators = [*node.ops]
            is_of_times = _has_time(node.left) or any(map(_has_time, node.comparators))
            flips = _COMPARISONS | _OPPOSITES if is_of_times else _COMPARISONS
            operators[place] = flips[type(operator)]()
            flipped = ast.Compare(node.left, operators, node.comparators)
            if (offered := self._offer(node, flipped)) is not node:
                result = offered
        return result

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return self._offer(node, ast.BoolOp(_LINKS[type(node.op)](), node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._offer(node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = _SUMS.get(type(node.op))
        if other is None or _is_sequence(node):
            return node
        return self._offer(node, ast.BinOp(node.left, other(), node.right))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        other = _SUMS.get(type(node.op))
        if other is None or _is_sequence(node.value):
            return node
        return self._offer(node, ast.AugAssign(node.target, other(), node.value))


def _has_time(node: ast.expr) -> bool:
    """Return whether a value is a duration or a moment, as far as the names in it show."""
    names = [
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute | ast.Name)
    ]
    return any(name.endswith(_TIMES) for name in names)


def _is_sequence(node: ast.expr) -> bool:
    """Return whether a sum is of texts, lists or tuples, as far as its source shows."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _is_sequence(left) or _is_sequence(right)
        case (
            ast.Constant(value=str() | bytes()) | ast.JoinedStr() | ast.List() | ast.Tuple() | ast.ListComp()
        ):
            return True
    return False
