"""Credentials in the options of ``format("shoal")``: no task uses those that Spark's connections revealed."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import shoal
from shoal.errors import ConfigError
from shoal.mirroring.model.position import ProducerIdentity
from shoal.spark.launch.session import spark_session
from shoal.spark.options import ReadOptions, WriteOptions
from shoal.spark.planning import TaskPartition
from shoal.spark.rows import BYTES
from shoal.spark.sink import StreamWriter, Writer
from shoal.spark.source import BatchReader, StreamReader

PASSWORD = "hidden-7f"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="a" password="{PASSWORD}";',
}
SERVERS = {"bootstrap.servers": "localhost:1"}
LOCAL = {"spark.master": "local[*]"}
CLUSTER = {"spark.master": "spark://host:7077"}
ON = {"spark.authenticate": " TRUE"}
ALLOWED = {"spark.shoal.allowUnauthenticated": "true"}


def cluster(prefix: str, login: Mapping[str, str] = LOGIN) -> dict[str, str]:
    return {prefix + name: value for name, value in {**SERVERS, **login}.items()}


def read(kind: type[BatchReader | StreamReader], options: Mapping[str, str]) -> None:
    parsed = ReadOptions.parse({"subscribe": "topic", **options}, streaming=kind is StreamReader)
    list(pickle.loads(pickle.dumps(kind(parsed))).read(TaskPartition(())))


def write(kind: type[Writer | StreamWriter], options: Mapping[str, str]) -> None:
    writer = kind(WriteOptions.parse(options), ProducerIdentity(1, 0))
    pickle.loads(pickle.dumps(writer)).write(iter([]))


def runs_in(settings: Mapping[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this be a task of a session with these settings; None for a process that is no task."""
    task = None if settings is None else SimpleNamespace(getLocalProperty=settings.get)
    monkeypatch.setattr(TaskContext, "get", lambda: task)


@pytest.mark.parametrize(
    ("run", "kind", "options"),
    [
        (read, BatchReader, cluster("kafka.")),
        (read, StreamReader, cluster("kafka.")),
        (write, Writer, cluster("kafka.")),
        (write, StreamWriter, cluster("kafka.")),
    ],
)
def test_task_with_credentials_is_refused_if_spark_does_not_authenticate(
    run: Callable[[type, Mapping[str, str]], None],
    kind: type,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs_in(LOCAL, monkeypatch)
    with pytest.raises(
        ConfigError, match=r"^spark\.authenticate.*'false'.*spark\.shoal\.allowUnauthenticated=true"
    ) as refused:
        run(kind, options)
    assert PASSWORD not in str(refused.value)
    for settings in (ALLOWED, ON):
        runs_in({**LOCAL, **settings}, monkeypatch)
        run(kind, options)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({**CLUSTER, **ON}, r"spark\.network\.crypto\.enabled"),
        ({**CLUSTER, "spark.ssl.rpc.enabled": "true"}, r"spark\.authenticate"),
        ({**CLUSTER, **ON, "spark.ssl.rpc.enabled": "true"}, None),
        ({}, None),  # as tasks of an RDD
        (None, None),
    ],
)
def test_task_with_credentials_is_refused_by_the_settings_of_its_session(
    settings: dict[str, str] | None, missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_in(settings, monkeypatch)
    with pytest.raises(ConfigError, match=f"^{missing} 'false': ") if missing else nullcontext():
        read(BatchReader, cluster("kafka."))


def test_task_without_credentials_needs_no_authentication(monkeypatch: pytest.MonkeyPatch) -> None:
    runs_in(LOCAL, monkeypatch)
    read(BatchReader, cluster("kafka.", {}))
    write(Writer, cluster("kafka.", {}))


def session(settings: Mapping[str, str]) -> SparkSession:
    conf = SimpleNamespace(get=settings.get)
    context = SimpleNamespace(master=settings["spark.master"], getConf=lambda: conf)
    return cast("SparkSession", SimpleNamespace(sparkContext=context))


@pytest.mark.parametrize("of", ["reader", "streamReader"])
@pytest.mark.parametrize(
    ("settings", "login", "is_refused"),
    [
        (LOCAL, LOGIN, True),
        ({**CLUSTER, **ON}, LOGIN, True),
        ({**LOCAL, **ON}, LOGIN, False),
        (LOCAL, {}, False),
    ],
)
def test_session_that_would_reveal_credentials_plans_no_tasks(
    settings: dict[str, str], login: dict[str, str], is_refused: bool, of: str
) -> None:
    kind = pickle.loads(cloudpickle.dumps(shoal.data_source(session(settings))))
    options = {**cluster("kafka.", login), "subscribe": "topic"}
    with pytest.raises(ConfigError, match=r"'false'.*Spark's") if is_refused else nullcontext():
        getattr(kind(options), of)(BYTES)
    allowed = pickle.loads(cloudpickle.dumps(shoal.data_source(session({**settings, **ALLOWED}))))
    getattr(allowed(options), of)(BYTES)


@pytest.mark.parametrize("of", ["writer", "streamWriter"])
def test_session_that_would_reveal_credentials_plans_no_writing_task(of: str) -> None:
    kind = pickle.loads(cloudpickle.dumps(shoal.data_source(session(LOCAL))))
    with pytest.raises(ConfigError, match=r"'false'.*Spark's"):
        getattr(kind(cluster("kafka.")), of)(BYTES, False)


class _WithoutCluster(shoal.ShoalDataSource):
    """Writes with an identity that no cluster has given."""

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        return Writer(WriteOptions.parse(self.options), ProducerIdentity(1, 0))


@pytest.mark.integration
# In this order, since the second session begins in the JVM that the first one leaves behind.
@pytest.mark.parametrize("authenticates", [True, False])
def test_tasks_have_the_settings_of_the_session(authenticates: bool, tmp_path: Path) -> None:
    session = spark_session(
        "local[1]", {} if authenticates else {"spark.authenticate": "false"}, tmp_path / "spark.log", tmp_path
    )
    try:
        session.dataSource.register(_WithoutCluster)
        # Without a row a task has nothing to write, and connects nowhere.
        writer = session.createDataFrame([], BYTES).write.format("shoal").mode("append")
        writer = writer.options(**cluster("kafka."))
        with (
            nullcontext()
            if authenticates
            else pytest.raises(PySparkException, match=r"spark\.authenticate 'false'")
        ):
            writer.save()
    finally:
        session.stop()


@pytest.mark.integration
def test_session_without_authentication_starts_no_job_with_credentials(tmp_path: Path) -> None:
    session = spark_session("local[1]", {"spark.authenticate": "false"}, tmp_path / "spark.log", tmp_path)
    try:
        session.dataSource.register(shoal.data_source(session))
        writer = session.createDataFrame([], BYTES).write.format("shoal").mode("append")
        writer = writer.options(**cluster("kafka."))
        reader = session.read.format("shoal").options(**cluster("kafka."), subscribe="topic")
        for run in (writer.save, lambda: reader.load().collect()):
            with pytest.raises(PySparkException, match=r"spark\.authenticate 'false'"):
                run()
        assert not session.sparkContext.statusTracker().getJobIdsForGroup()
    finally:
        session.stop()
