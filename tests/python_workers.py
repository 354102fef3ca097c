"""Find the processes that run Spark's Python tasks."""

import psutil

__all__ = ["is_python_worker"]

_DAEMONS = ("pyspark.daemon", "shoal.spark.launch.daemon")
"""PySpark's, and that of a mirror on one machine. A worker is forked, so its command line is the daemon's."""


def is_python_worker(process: psutil.Process) -> bool:
    """Whether the process runs Python tasks: a child of a daemon of workers."""
    try:
        parent = process.parent()
        return parent is not None and _is_of_daemon(process) and _is_of_daemon(parent)
    except psutil.Error:
        return False


def _is_of_daemon(process: psutil.Process) -> bool:
    return any(daemon in process.cmdline() for daemon in _DAEMONS)
