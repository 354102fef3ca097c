"""Twice the slots of a local master, and as many tasks as before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from shoal.spark.slots import doubled, slots_of

JVM: Any = SimpleNamespace(
    java=SimpleNamespace(
        lang=SimpleNamespace(
            Runtime=SimpleNamespace(getRuntime=lambda: SimpleNamespace(availableProcessors=lambda: 3))
        )
    )
)


@pytest.mark.parametrize(
    ("master", "parallelism", "expected"),
    [
        ("local[2,4]", None, ("local[4,4]", "2")),
        ("local[ 2 , 7 ]", None, ("local[4,7]", "2")),
        ("local[*,4]", None, ("local[6,4]", "3")),
        ("local[2,4]", "5", ("local[4,4]", "5")),
        ("local-cluster[2,1,1024]", None, ("local-cluster[2,1,1024]", None)),
        ("spark://host:7077", None, ("spark://host:7077", None)),
    ],
)
def test_local_master_has_two_slots_for_each_task(
    master: str, parallelism: str | None, expected: tuple[str, str | None]
) -> None:
    given = {} if parallelism is None else {"spark.default.parallelism": parallelism}
    settings = doubled({"spark.master": master, **given}, JVM)
    assert (settings["spark.master"], settings.get("spark.default.parallelism")) == expected


def test_spark_that_does_not_say_its_slots_has_none() -> None:
    def refuse() -> None:
        raise Py4JError("Method resourceProfileManager([]) does not exist")

    context: Any = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(resourceProfileManager=refuse))
    )
    assert slots_of(context) == 0
