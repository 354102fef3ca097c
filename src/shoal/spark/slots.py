"""
The slots in which Spark runs tasks. A mirror needs each of its own twice, for windows that overlap.

A task of the next window starts while one of the current window copies. It needs a slot of its own for some
seconds, and next to no CPU. On this machine a mirror has twice the slots that its master names, and still one
task for each that it names. On a cluster the next window is prepared if as many slots are free. If they are
not, or if other jobs take them, Spark starts the tasks of the next window when those of this one end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext

__all__ = ["doubled", "slots_of"]

_PARALLELISM = "spark.default.parallelism"


def doubled(settings: Mapping[str, str], jvm: JVMView) -> dict[str, str]:
    """Return Spark's settings with twice the slots of a local master, and as many tasks as before."""
    local = re.fullmatch(r"local\[(\*|\d+),(\d+)\]", settings["spark.master"].replace(" ", ""))
    if local is None:
        return dict(settings)
    named, attempts = local.groups()
    slots = jvm.java.lang.Runtime.getRuntime().availableProcessors() if named == "*" else int(named)
    return {_PARALLELISM: str(slots), **settings, "spark.master": f"local[{2 * slots},{attempts}]"}


def slots_of(context: SparkContext) -> int:
    """Return the number of tasks that can run at a time; 0 if Spark does not report it."""
    try:
        scala = context._jsc.sc()
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))
    except (Py4JError, AttributeError):
        return 0
