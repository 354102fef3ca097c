"""One test over many recorded cases, with a subtest for each.

In contrast to ``pytest.mark.parametrize``, the cases are not collected one by one:
there are thousands of recorded frames, and collecting them takes longer than reading
them. If a case fails, the report names it, and the following cases still run.
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
    """Call a test for each case, as a subtest with the case's name.

    Args:
        argument: The test's argument for the case; its others are fixtures, which all cases share.
        cases: At least one, in order.
        name: Returns a case's name, which must be unique.

    Raises:
        ValueError: There are no cases, or two have the same name.
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
