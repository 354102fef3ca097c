"""
``shoal verify --master``: the comparison as a job of Spark.

Each task compares whole partitions. Spark carries plans and reports. The tasks read both clusters by
themselves, as the tasks of a mirror do.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.core.context import SparkContext

from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from shoal.mirroring.model.copy_options import CopyOptions
from shoal.spark.engine import our_errors
from shoal.spark.launch.session import spark_context
from shoal.spark.trust import key_for_tasks
from shoal.state_directory import make_state_directory, state_dir
from shoal.verify.partition import Assignment, PartitionComparison
from shoal.verify.report import PartitionReport
from shoal.verify.run import Compare

__all__ = ["CompareTask", "comparison_on_spark"]

_LOG_FILE = "verify-spark.log"


@dataclass(frozen=True, slots=True)
class CompareTask:
    """
    Compares the partitions that Spark gives to a task. Spark pickles it, so its credentials are sealed.

    Attributes:
        source: The source cluster, without credentials.
        destination: The destination cluster, without credentials.
        sealed: The credentials of both, sealed; None if neither needs any.
        key: The key to them, or the file that has the key.
        options: The limits for decoding a batch.
        patience_s: How long to retry transient errors.

    """

    source: ClientConfig
    destination: ClientConfig
    sealed: str | None = field(repr=False)
    key: str | Path = field(repr=False)
    options: CopyOptions
    patience_s: float

    def __call__(self, assignments: Iterable[Assignment]) -> list[PartitionReport]:
        """
        Compare the partitions of a task. Runs in the task.

        Raises:
            ShoalError: A cluster does not answer.

        """
        credentials = Credentials.unseal(self.sealed, self.key) if self.sealed else Credentials({})
        source, destination = map(credentials.into, (self.source, self.destination))
        with Cluster(source) as ours, Cluster(destination) as theirs:
            return [self._compare(each, ours, theirs) for each in assignments]

    def _compare(self, assignment: Assignment, source: Cluster, destination: Cluster) -> PartitionReport:
        plan, patience_s = assignment.plan, self.patience_s
        patiently(lambda: source.refresh([plan.source.topic]), patience_s=patience_s)
        patiently(lambda: destination.refresh([plan.destination.topic]), patience_s=patience_s)
        comparison = PartitionComparison(
            assignment, options=self.options, patience_s=patience_s, stop=threading.Event()
        )
        return comparison.run(source, destination)


@contextlib.contextmanager
def comparison_on_spark(
    source: ClientConfig,
    destination: ClientConfig,
    *,
    master: str,
    conf: Mapping[str, str],
    options: CopyOptions,
    patience_s: float,
) -> Iterator[Compare]:
    """
    Start Spark for a comparison, or use the context that this process has.

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
        task = CompareTask(ours, theirs, sealed, key, options, patience_s)

        def compare(assignments: Sequence[Assignment]) -> list[PartitionReport]:
            if not assignments:
                return []
            with our_errors(log_file):
                return context.parallelize(assignments, len(assignments)).mapPartitions(task).collect()

        yield compare
