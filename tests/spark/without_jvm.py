"""
A Spark without a JVM: runs a mirror's streaming query, or its batch job, in threads of this process.

The calls to a data source are Spark's, in the same order: for a micro-batch, request the latest offset and
plan the partitions. Then read and write each partition in a task of its own, and commit after all have ended.
Tests with Spark cover its scheduler, its processes and its retries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import Row

from shoal.spark import engine

__all__ = ["without_jvm"]


class _Query:
    def __init__(self, source: type[Any], read: dict[str, str], write: dict[str, str]) -> None:
        self._reader = source(read).streamReader(source(read).schema())
        self._writer = source(write).streamWriter(source(read).schema(), False)
        self._columns = source(read).schema().names
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self.status = {"isTriggerActive": True}
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(64) as tasks:
                offset = self._reader.initialOffset()
                while not self._stopping.is_set():
                    latest = self._reader.latestOffset()
                    if latest != offset:
                        self.status["isTriggerActive"] = True
                        lanes = self._reader.partitions(offset, latest)
                        messages = list(tasks.map(self._task, lanes))
                        self._writer.commit(messages, 0)
                        offset = latest
                    self.status["isTriggerActive"] = False
                    time.sleep(0.01)
        except BaseException as error:
            self._error = error
        finally:
            self.status["isTriggerActive"] = False

    def _task(self, lane: Any) -> Any:
        rows = (Row(*self._columns)(*values) for values in self._reader.read(lane))
        return self._writer.write(rows)

    def exception(self) -> StreamingQueryException | None:
        if self._error is None:
            return None
        kind = f"{type(self._error).__module__}.{type(self._error).__name__}"
        return StreamingQueryException(f"{kind}: {self._error}")

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        self._reader.stop()
        assert not self._thread.is_alive(), "a task does not end"


class _Builder:
    """``format(…).options(…)`` of either side, up to ``load()``, ``start()`` or ``save()``."""

    def __init__(self, session: _Session, read: dict[str, str] | None = None) -> None:
        self._session = session
        self._read = read
        self._options: dict[str, str] = {}

    def format(self, name: str) -> Self:
        return self

    def options(self, **options: str) -> Self:
        self._options |= options
        return self

    def option(self, name: str, value: str) -> Self:
        return self.options(**{name: value})

    def load(self) -> Any:
        builder = _Builder(self._session, self._options)
        return SimpleNamespace(writeStream=builder, write=builder)

    def mode(self, name: str) -> Self:
        return self

    def save(self) -> None:
        assert self._read is not None
        source = self._session.source
        schema = source(self._read).schema()
        reader = source(self._read).reader(schema)
        writer = source(self._options).writer(schema, False)
        with ThreadPoolExecutor(64) as tasks:
            rows = ([Row(*schema.names)(*each) for each in reader.read(lane)] for lane in reader.partitions())
            writer.commit(list(tasks.map(lambda lane: writer.write(iter(lane)), rows)))

    def start(self) -> _Query:
        assert self._read is not None
        return _Query(self._session.source, self._read, self._options)


class _Session:
    def __init__(self, parallelism: int) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=parallelism)
        self.conf = SimpleNamespace(get=lambda name, default=None: default)
        self.dataSource = self
        self.source: type[Any]

    def register(self, source: type[Any]) -> None:
        self.source = source

    @property
    def read(self) -> _Builder:
        return _Builder(self)

    @property
    def readStream(self) -> _Builder:  # noqa: N802
        return _Builder(self)

    def stop(self) -> None:
        """End with the process."""


@contextmanager
def without_jvm(monkeypatch: pytest.MonkeyPatch, parallelism: int = 2) -> Iterator[None]:
    """Let mirrors run without a JVM."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "spark_session", lambda *_, **__: _Session(parallelism))
        yield
