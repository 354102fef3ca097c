"""
Changes of embedded clusters between two tasks, or before a later request of one.

An event is a function that changes a world. ``happens`` gives it a family. A trial draws events of few
families, so that one kind of trouble meets itself often enough.
"""

from __future__ import annotations

from typing import TypeAlias

from tests.world.reports import Outcome
from tests.world.tasks import TaskWorld

from .catalogue import Catalogue, Family

__all__ = ["TASKS", "Family", "TaskEnd", "happens", "runs"]

#: How a task ended, and the source offsets up to which it should have copied.
TaskEnd: TypeAlias = tuple[Outcome, list[int]]

#: The modules ``*_events`` and ``runs`` add what they have.
TASKS: Catalogue[TaskWorld, TaskEnd] = Catalogue()

happens = TASKS.happens
runs = TASKS.runs
