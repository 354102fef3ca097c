"""The steps of a scenario, which do nothing unless it has another for them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from tests.two_brokers import Content

from .promises import Findings, exact

if TYPE_CHECKING:
    from .stage import Stage

__all__ = ["FOREIGN", "Scenario"]

#: No record of the source has this value.
FOREIGN = b"of another producer"


class Scenario:
    """An event of clusters, positions or tasks.

    Attributes:
        name: Name for reports, and to repeat a trial.
        promise: Returns the faults of a partition.
        stops: Patterns of the documented sentences by which a partition may stop.
    """

    name: ClassVar[str]
    stops: Sequence[str] = ()

    def promise(self, found: Findings) -> list[str]:
        return exact(found)

    def destination_config(self, dice: random.Random) -> dict[str, str]:
        return {}

    def begin(self, stage: Stage) -> None:
        """Prepare the stage, before the first task."""

    def round(self, stage: Stage) -> None:
        """Apply the event after the source has grown, and start a task."""
        stage.task()

    def broken_promises(self, stage: Stage, stopped: Collection[int]) -> list[str]:
        """Describe other faults than the copy's, once all is mirrored that no stopped partition has."""
        return []

    def copy(self, stage: Stage, number: int) -> list[Content]:
        """Return the records of the destination to compare."""
        return stage.brokers.copied(stage.topic, number)
