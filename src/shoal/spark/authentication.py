"""
Protect the clusters' credentials on their way to tasks: by a file, or by Spark's own authentication.

Tasks receive the sealed credentials over the control connection. The key that opens them reaches tasks on
this machine in a file that only their user can read. On a cluster the key is in the pickled task,
which Spark serves to every process that joins the application. So a process must authenticate before it can
join, and the connections must be encrypted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkContext

from shoal.mirroring.credentials import PROCESS_KEY, key_in_file
from shoal.spark.connections import is_on_this_machine, refuse_revealing

__all__ = ["key_for_tasks", "refuse_unauthenticated"]


def refuse_unauthenticated(context: SparkContext) -> None:
    """
    Refuse a Spark whose connections would reveal the clusters' credentials.

    Raises:
        ConfigError: Authentication is off; or encryption is off, and Spark runs on several machines.

    """
    refuse_revealing(str(context.master), context.getConf().get, "--allow-unauthenticated-spark")


@contextlib.contextmanager
def key_for_tasks(context: SparkContext, directory: Path) -> Iterator[str | Path]:
    """Yield the key; on this machine, a file in ``directory`` that has the key until the context ends."""
    if is_on_this_machine(str(context.master)):
        with key_in_file(directory) as file:
            yield file
    else:
        yield PROCESS_KEY
