"""Credentials in the options of ``format("shoal")``: no task uses those that Spark's connections revealed."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import shoal
from shoal.errors import ConfigError
from shoal.spark.rows import BYTES
from tests.spark.sessions import spark_session

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


@pytest.mark.parametrize(("of", "more"), [("reader", ()), ("streamReader", ()), ("writer", (False,))])
def test_class_without_a_session_is_refused_credentials(of: str, more: tuple[bool, ...]) -> None:
    options = cluster("kafka.") | ({} if more else {"subscribe": "topic"})
    with pytest.raises(ConfigError, match=r"shoal\.data_source\(spark\)") as refused:
        getattr(shoal.ShoalDataSource(options), of)(BYTES, *more)
    assert PASSWORD not in str(refused.value)


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
