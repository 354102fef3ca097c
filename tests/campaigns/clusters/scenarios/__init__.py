"""Scenarios of clusters, positions and tasks, each with the promise that the copy must keep.

The other trials of this folder kill, disconnect and stall between two real clusters,
and the copy must be exact. Here consumers move, topics are deleted and filled
again, and positions are deleted. No mirror can compensate all of that, so each
scenario has a promise of its own (:mod:`.promises`). Source and destination are
embedded brokers, and the tasks are threads that can end at any step. No process
could be stopped at these moments, and a thousand trials take the time of a
hundred. The other events of tasks are those of `tests.campaigns.plan`.
"""

from .catalogue import SCENARIOS
from .scenario import Scenario
from .stage import ScenarioPlan, draw_scenario, run_scenario

__all__ = ["SCENARIOS", "Scenario", "ScenarioPlan", "draw_scenario", "run_scenario"]
