"""
Work for many partitions as a job of Spark: a task does that for whole partitions.

Spark carries the jobs and their results. The tasks read both clusters by themselves, as the tasks of a mirror
do.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from pyspark.core.context import SparkContext

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from shoal.spark.engine import our_errors
from shoal.spark.launch.session import spark_context
from shoal.spark.trust import key_for_tasks
from shoal.state_directory import make_state_directory, state_dir

__all__ = ["over_partitions_on_spark"]

_LOG_FILE = "verify-spark.log"

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Task(Generic[J, R]):
    """
    Does the jobs that Spark gives to a task. Spark pickles it, so its credentials are sealed.

    Attributes:
        do: Does a job. It gets the job, and both clusters.
        source: The source cluster, without credentials.
        destination: The destination cluster, without credentials.
        sealed: The credentials of both, sealed; None if neither needs any.
        key: The key to them, or the file that has the key.

    """

    do: Callable[[J, Cluster, Cluster], R]
    source: ClientConfig
    destination: ClientConfig
    sealed: str | None = field(repr=False)
    key: str | Path = field(repr=False)

    def __call__(self, jobs: Iterable[J]) -> list[R]:
        """Do the jobs of a task. Runs in the task."""
        credentials = Credentials.unseal(self.sealed, self.key) if self.sealed else Credentials({})
        source, destination = map(credentials.into, (self.source, self.destination))
        with Cluster(source) as ours, Cluster(destination) as theirs:
            return [self.do(each, ours, theirs) for each in jobs]


@contextlib.contextmanager
def over_partitions_on_spark(
    do: Callable[[J, Cluster, Cluster], R],
    source: ClientConfig,
    destination: ClientConfig,
    *,
    master: str,
    conf: Mapping[str, str],
) -> Iterator[Callable[[Sequence[J]], list[R]]]:
    """
    Start Spark for such jobs, or use the context that this process has.

    Args:
        do: Does a job in a task. It gets the job, and both clusters without any metadata.
        source: How to reach the source cluster.
        destination: How to reach the destination cluster.
        master: The Spark master.
        conf: Spark's properties.

    Yields:
        A function that does jobs.

    Raises:
        ConfigError: Spark does not start, or its connections would reveal the clusters' credentials.
        ShoalError: Spark failed.

    """
    make_state_directory(state_dir())
    log_file = state_dir() / _LOG_FILE
    is_ours = SparkContext._active_spark_context is None
    with contextlib.ExitStack() as stack:
        context = spark_context(master, conf, log_file, state_dir(), daemon="shoal.spark.launch.daemon")
        if is_ours:
            stack.callback(context.stop)
        clusters = source, destination
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-verify-")))
        key = stack.enter_context(key_for_tasks(context, clusters, directory))
        credentials = Credentials.of(*clusters)
        sealed = credentials.seal(PROCESS_KEY) if credentials else None
        ours, theirs = map(Credentials({}).into, clusters)
        task = _Task(do, ours, theirs, sealed, key)

        def do_all(jobs: Sequence[J]) -> list[R]:
            if not jobs:
                return []
            with our_errors(log_file):
                return context.parallelize(jobs, len(jobs)).mapPartitions(task).collect()

        yield do_all
