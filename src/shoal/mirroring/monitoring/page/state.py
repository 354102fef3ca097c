"""
The state of a mirror as one object: ``/state.json``, and the inside of a report.

The object has no secrets. Its names are those of partitions, processes and the consumer group, and its
sentences are those that the mirror also prints.
"""

from __future__ import annotations

import importlib.metadata
import time
from dataclasses import asdict, dataclass
from typing import Any

from ....printable import printable_values
from ...model.processes import GarbageCollection
from ...model.progress import Summary
from ..metrics import Metrics
from .history import Sampler

__all__ = ["About", "Ending", "state_object"]


@dataclass(frozen=True, slots=True)
class About:
    """
    The identity of a mirror.

    Attributes:
        source: The source's bootstrap servers, as the user wrote them.
        destination: The destination's bootstrap servers, as the user wrote them.
        group: The consumer group with the committed positions; None until it is known.
        warnings: The warnings in the summary.

    """

    source: str
    destination: str
    group: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """
    The end of a mirror.

    Attributes:
        good: Whether the mirror ended without a problem.
        sentence: The result in a sentence.
        cpu_s: CPU seconds of all processes; None if only the tasks' reports are known, which lack their
            starts.
        jvm_gc: The garbage collection of Spark's JVMs, which have ended.

    """

    good: bool
    sentence: str
    cpu_s: float | None = None
    jvm_gc: GarbageCollection | None = None

    @classmethod
    def of(cls, summary: Summary) -> Ending:
        """Return the end of a mirror with a summary."""
        copied = f"{summary.records:,} records in {summary.batches:,} batches were copied"
        problem = ""
        if summary.stopped:
            problem = f", but {len(summary.stopped):,} of {summary.partitions:,} partitions stopped"
        elif summary.interrupted:
            problem = ". The mirror was interrupted, and the next run continues there"
        elif summary.clusters_down:
            problem = f", but {', and '.join(each.sentence for each in summary.clusters_down.values())}"
        elif summary.incidents:
            problem = ". The mirror continued after incidents"
        cpu_s = summary.python_cpu_s + summary.jvm_cpu_s
        return cls(not problem, f"{copied}{problem}.", cpu_s, summary.jvm_gc)


def state_object(about: About, metrics: Metrics, sampler: Sampler, ending: Ending | None) -> dict[str, Any]:
    """Return the state of a mirror now, and its last hour, with printable texts."""
    now = time.time()
    of_page = {
        **asdict(about),
        "version": importlib.metadata.version("shoal"),
        "now_ms": int(now * 1000),
        "ending": None if ending is None else asdict(ending),
    }
    state = metrics.state(sampler.processes())
    # The history has only numbers.
    return {**state.to_json_object(now), **printable_values(of_page), "history": sampler.history.columns()}
