"""
Refuse ``spark.speculation``: with it two attempts of a task write the same partition at a time.

A mirror looks at the setting when its session is there. ``format("shoal")`` in somebody's own job has no
session to ask, neither where Spark plans it nor in its tasks. But Spark hands each task the settings of its
session as local properties (``SQLExecution.withSQLConfPropagated``), so the tasks look there.
"""

from __future__ import annotations

from pyspark import TaskContext
from pyspark.sql import SparkSession

from shoal.errors import ConfigError

__all__ = ["refuse_speculation", "refuse_speculation_in_task"]

_SETTING = "spark.speculation"


def refuse_speculation(spark: SparkSession) -> None:
    """Raise ConfigError if the session's scheduler starts second attempts. Runs on the driver."""
    _refuse(spark.conf.get(_SETTING, None))


def refuse_speculation_in_task() -> None:
    """Raise ConfigError if the scheduler that started this task starts second attempts; before it writes."""
    context = TaskContext.get()
    _refuse(context.getLocalProperty(_SETTING) if context else None)


def _refuse(value: str | None) -> None:
    # Spark's own reading (ConfigHelpers.toBoolean): in any case, and with blanks around it.
    if value is not None and value.strip().lower() == "true":
        raise ConfigError(
            f"{_SETTING} {value!r}: two attempts of a task would write the same partition at a time; "
            "set it to false"
        )
