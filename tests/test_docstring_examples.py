"""Each public name of shoal has an example of its use, and the example's output is right."""

from __future__ import annotations

import doctest

import pytest

import shoal
from tests.docstring_examples import ADDRESS, OTHER_ADDRESS, broker_with_orders, example_of, failures_of

#: tests/spark/test_docstring_examples.py runs these.
ON_SPARK = {"ShoalDataSource", "data_source", "mirror"}


@pytest.mark.parametrize("name", sorted(set(shoal.__all__) - ON_SPARK))
def test_example_of_a_public_name_has_its_output(name: str) -> None:
    with broker_with_orders() as broker:
        assert failures_of(name, {ADDRESS: broker.bootstrap, OTHER_ADDRESS: broker.bootstrap}) == ""


@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_example_on_spark_is_valid_python(name: str) -> None:
    examples = doctest.DocTestParser().get_examples(example_of(name))
    assert examples
    for example in examples:
        compile(example.source, f"shoal.{name}", "single")


def test_example_with_other_output_fails() -> None:
    assert "Expected:" in failures_of("TopicPartition", {"orders-0": "orders-1"})
