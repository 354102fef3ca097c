"""The docstring examples of public names that need Spark have the shown output."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from shoal_broker import Broker
from tests.docstring_examples import ADDRESS, OTHER_ADDRESS, broker_with_orders, failures_of
from tests.spark.sessions import spark_session
from tests.test_docstring_examples import ON_SPARK


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    state = tmp_path_factory.mktemp("spark")
    session = spark_session("local[2]", {}, state / "spark.log", state)
    yield session
    session.stop()


@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_docstring_example_on_spark_has_its_output(spark: SparkSession, name: str) -> None:
    with broker_with_orders() as broker, Broker() as other:
        addresses = {ADDRESS: broker.bootstrap, OTHER_ADDRESS: other.bootstrap}
        assert failures_of(name, addresses, spark=spark) == ""
