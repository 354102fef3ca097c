"""
A Spark without a JVM: runs a mirror's jobs in threads of this process.

The fake pickles tasks as Spark does. Tests with Spark cover its scheduler, its processes and its retries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkException

from shoal.spark import engine

__all__ = ["Context", "without_jvm"]


class _Job:
    """An RDD with one value for each task."""

    def __init__(self, tasks: Sequence[Any]) -> None:
        self._tasks = [pickle.dumps(each) for each in tasks]
        self._function = b""

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> Self:  # noqa: N802
        self._function = pickle.dumps(function)
        return self

    def collect(self) -> list[Any]:
        with ThreadPoolExecutor(64) as threads:
            try:
                return [each for result in threads.map(self._run, self._tasks) for each in result]
            except Exception as error:
                kind = f"{type(error).__module__}.{type(error).__name__}"
                raise PySparkException(f"{kind}: {error}") from error

    def _run(self, task: bytes) -> Iterable[Any]:
        return list(pickle.loads(self._function)([pickle.loads(task)]))


class Context:
    """A Spark context whose jobs run in threads."""

    master = "local[2,4]"

    def __init__(self, parallelism: int) -> None:
        self.defaultParallelism = parallelism

    def getConf(self) -> SparkConf:  # noqa: N802
        return SparkConf(loadDefaults=False, _jvm=None)

    def setJobGroup(self, group: str, description: str) -> None:  # noqa: N802
        """No job is cancelled."""

    def parallelize(self, tasks: Sequence[Any], slices: int) -> _Job:
        assert slices == len(tasks)
        return _Job(tasks)

    def stop(self) -> None:
        """End with the process."""


@contextmanager
def without_jvm(monkeypatch: pytest.MonkeyPatch, parallelism: int = 2) -> Iterator[None]:
    """Let mirrors run without a JVM."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "spark_context", lambda *_, **__: Context(parallelism))
        patched.setattr(engine.SparkEngine, "run_nothing", lambda _: None)  # there are no processes to start
        yield
