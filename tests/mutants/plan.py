"""The plan of a run of pytest, from the program to the plugin ``recorder``."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PACKAGE_NAMES", "PLAN", "Plan"]

#: The packages whose mutants are tried.
PACKAGE_NAMES = ("shoal", "shoal_broker")

#: The environment variable with the path of the plan.
PLAN = "SHOAL_MUTANTS_PLAN"


class Plan(NamedTuple):
    """
    The plan of one run.

    Attributes:
        events: The file for the events.
        deadlines: The tests to run, in this order, each with its seconds; None runs all that pytest collects,
            also after a failure.

    """

    events: str
    deadlines: dict[str, float] | None = None
