"""
Refuse ``spark.speculation``, with which two attempts of a task write the same partition at a time.

A mirror checks the setting when it has its session. ``format("shoal")`` in a user's own job has no access to
the session, neither in the plan nor in the tasks. But Spark gives each task the settings of its session as
local properties (``SQLExecution.withSQLConfPropagated``), so the tasks check these.
"""

from __future__ import annotations

from pyspark import SparkContext, TaskContext

from shoal.errors import ConfigError

__all__ = ["refuse_speculation", "refuse_speculation_in_task"]

_SETTING = "spark.speculation"


def refuse_speculation(context: SparkContext) -> None:
    """Raise ConfigError if the scheduler starts second attempts. Runs on the driver."""
    _refuse(context.getConf().get(_SETTING))


def refuse_speculation_in_task() -> None:
    """Raise ConfigError if the scheduler of this task starts second attempts. Call it before writing."""
    context = TaskContext.get()
    _refuse(context.getLocalProperty(_SETTING) if context else None)


def _refuse(value: str | None) -> None:
    # As Spark reads it (ConfigHelpers.toBoolean): in upper or lower case, and with blanks around it.
    if value is not None and value.strip().lower() == "true":
        raise ConfigError(
            f"{_SETTING} {value!r}: two attempts of a task would write the same partition at a time. "
            "Set it to false"
        )
