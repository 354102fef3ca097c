"""
Protect the clusters' credentials on their way to tasks: by a file, or by Spark's own authentication.

Tasks receive the sealed credentials over the control connection. The key that opens them reaches tasks on
this machine in a file that only their user can read. On a cluster the key is in the pickled task,
which Spark serves to every process that joins the application. So a process must authenticate before it can
join, and the connections must be encrypted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark import SparkContext

from shoal.client.config import ClientConfig
from shoal.mirroring.credentials import PROCESS_KEY, Credentials, key_in_file
from shoal.spark.connections import is_on_this_machine, refuse_revealing

__all__ = ["key_for_tasks"]


@contextlib.contextmanager
def key_for_tasks(
    context: SparkContext, clusters: Sequence[ClientConfig], directory: Path, *, allow_unauthenticated: bool
) -> Iterator[str | Path]:
    """
    Yield the key that opens the clusters' sealed credentials in tasks; an empty one if they have none.

    Args:
        directory: A directory for the file of the key, which is there until the context ends. Tasks on other
            machines have the key itself.
        allow_unauthenticated: Whether Spark's connections may reveal the credentials.

    Raises:
        ConfigError: Authentication is off; or encryption is off, and Spark runs on several machines.

    """
    if not Credentials.of(*clusters):
        yield ""
        return
    master = str(context.master)
    if not allow_unauthenticated:
        refuse_revealing(master, context.getConf().get, "--allow-unauthenticated-spark")
    if is_on_this_machine(master):
        with key_in_file(directory) as file:
            yield file
    else:
        yield PROCESS_KEY
