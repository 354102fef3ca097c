"""
One test over many recorded cases, with a subtest for each.

As ``pytest.mark.parametrize``, whose items would be collected one by one: of
the recorded frames there are thousands, which takes longer than to read them
all. What fails is named, and the cases behind it are still looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

__all__ = ["each_case"]


def each_case(
    argument: str, cases: Iterable[Any], name: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Call a test for each case, as a subtest that bears the case's name.

    Args:
        argument: Of the test; its others are fixtures, which all cases share.
        cases: At least one, in order.
        name: What a case is called; no two by the same.

    Raises:
        ValueError: There are no cases, or two of one name.

    """
    found = list(cases)
    names = [name(each) for each in found]
    if not found or len(set(names)) < len(names):
        raise ValueError(f"{argument}: {len(found)} cases with {len(set(names))} names")

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for each, called in zip(found, names, strict=True):
                with subtests.test(called):
                    test(**{argument: each}, **fixtures)

        taken = inspect.signature(test).parameters
        own = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        others = [each for each in taken.values() if each.name != argument]
        vars(run)["__signature__"] = inspect.Signature([*others, own])
        return run

    return decorate
