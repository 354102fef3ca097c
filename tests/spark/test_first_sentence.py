"""Errors that Spark reports as a traceback begin with their sentence."""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Iterator
from functools import partial
from operator import methodcaller

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ConfigError, ShoalError
from shoal.spark.datasource import ShoalDataSource
from shoal.spark.first_sentence import ReportedError, sentence_first


@sentence_first
class Reader:
    """Raises."""

    def __init__(self) -> None:
        self.rows = 2

    def partitions(self) -> list[int]:
        raise ConfigError("option subscribe: no topic")

    def read(self) -> Iterator[int]:
        yield from range(self.rows)
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "orders-0", "bad")

    def commit(self) -> None:
        raise ValueError("not ours")

    def _inner(self) -> None:
        raise ConfigError("inner")


def test_traceback_of_a_shoal_error_begins_with_its_message() -> None:
    try:
        Reader().partitions()
    except ShoalError as error:
        error.__cause__ = None  # as pyspark.util.handle_worker_exception does
        lines = traceback.format_exc().splitlines()
    assert lines[0].startswith("shoal.errors.ConfigError: option subscribe: ")
    assert any(line.startswith("Traceback") for line in lines)
    assert any("in partitions" in line for line in lines)
    assert re.search(r"option.*subscribe", lines[-1])


def test_generator_error_after_rows_begins_with_its_message() -> None:
    rows = Reader().read()
    assert [next(rows), next(rows)] == [0, 1]
    try:
        next(rows)
    except ReportedError:
        first = traceback.format_exc().splitlines()[0]
    assert first.startswith("shoal.errors.BrokerError: orders-0: ")
    assert "CORRUPT_MESSAGE (bad)" in first


def test_errors_of_others_and_of_private_methods_are_unchanged() -> None:
    for method, kind in (
        (Reader().commit, ValueError),
        (partial(methodcaller("_inner"), Reader()), ConfigError),
    ):
        with pytest.raises(kind) as raised:
            method()
        assert raised.value.__cause__ is None


def test_decorated_classes_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Reader())).rows == 2


def test_refused_option_of_the_data_source_begins_with_the_message() -> None:
    with pytest.raises(ReportedError) as raised:
        ShoalDataSource({"subscribe": "orders"}).reader(None)  # type: ignore[arg-type]
    assert "".join(traceback.format_exception(raised.value)).startswith("shoal.errors.ConfigError: ")


def test_notebook_shows_the_message_above_the_traceback() -> None:
    sentence = "the topic is gone"
    try:
        try:
            raise RuntimeError("Spark\n\tat java.lang.Thread")
        except RuntimeError as error:
            raise ShoalError(sentence) from error
    except ShoalError as error:
        lines = error._render_traceback_()
    assert lines[0] == f"ShoalError: {sentence}"
    assert any("java.lang.Thread" in line for line in lines[1:])
