"""Scenarios of topics, positions and consumers, each with the promise that the copy must keep.

Source and destination are embedded brokers, and the tasks are threads that can end at any step. Each scenario
has a promise of its own (:mod:`.promises`), since no mirror can compensate all of what happens in them.
"""

from .catalogue import SCENARIOS
from .scenario import Scenario
from .stage import ScenarioPlan, draw_scenario, run_scenario

__all__ = ["SCENARIOS", "Scenario", "ScenarioPlan", "draw_scenario", "run_scenario"]
