"""
What happens to clusters, positions and tasks, each with the promise that it is held against.

The other trials of this folder kill, cut and stall between two real clusters,
and the copy must be exact. Here the clusters change under the mirror: topics
are deleted and created, logs are compacted, positions get lost, clocks are
wrong. Some of that no mirror can make good, so each scenario has a promise of
its own (:mod:`.promises`). Source and destination are embedded brokers and the
tasks are threads, which die at any step: that gives moments that no process
could be stopped at, and a thousand trials in the time of a hundred.
"""

import sys
from pathlib import Path

# The modules that tests share: pytest finds them by itself, `python -m tests.chaos` does not.
sys.path.append(str(Path(__file__).parents[2]))

from .catalogue import SCENARIOS, Scenario
from .stage import ScenarioPlan, draw_scenario, run_scenario

__all__ = ["SCENARIOS", "Scenario", "ScenarioPlan", "draw_scenario", "run_scenario"]
