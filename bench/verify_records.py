"""The cost of ``shoal verify`` if it compares records: the row ``verify-records``.

A topic has 200,000 records of 100 bytes. Another producer has cut and compressed its copies again. One copy
has a block of 20,000 records elsewhere, and one has it twice. In one, the last two thirds are altered, so
that each side lacks 133,333; in another, two of three records are. The records alone show where a copy
begins. As in the row ``verify``, the second comparison of a process counts.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.movers import codes
from bench.rows import Row, Settings, delete_topics, in_turns
from bench.runs import Section
from bench.verify_speed import compare_twice
from rig.load import Codec, create_topic, load_values
from rig.made_records import FIRST_TIMESTAMP

__all__ = ["VERIFY_RECORDS"]

_RECORDS, _BLOCK = 200_000, 20_000
_RECORD_BYTES = 100
_EQUAL, _DIFFERENT = 0, 1

_Values = Sequence[tuple[int, bytes]]


@dataclass(frozen=True)
class _Case:
    """A copy of the topic.

    Attributes:
        copied: Returns the copy's times and values.
        exit_code: The result.
        options: Further options of ``shoal verify``.
    """

    copied: Callable[[_Values], _Values]
    exit_code: int
    options: Sequence[str] = ()


def _moved(values: _Values) -> _Values:
    quarter, block = len(values) // 4, len(values) * _BLOCK // _RECORDS
    rest = [*values[:quarter], *values[quarter + block :]]
    return [*rest[: 2 * quarter], *values[quarter : quarter + block], *rest[2 * quarter :]]


def _doubled(values: _Values) -> _Values:
    quarter, block = len(values) // 4, len(values) * _BLOCK // _RECORDS
    return [*values[: 2 * quarter], *values[quarter : quarter + block], *values[2 * quarter :]]


def _altered(values: _Values) -> _Values:
    third = len(values) // 3
    return [*values[:third], *((at, value[::-1]) for at, value in values[third:])]


def _altered_between(values: _Values) -> _Values:
    return [(at, value[::-1] if number % 3 else value) for number, (at, value) in enumerate(values)]


_CASES = {
    "cut again": _Case(lambda values: values, _EQUAL),
    "20,000 moved": _Case(_moved, _DIFFERENT),
    "20,000 doubled": _Case(_doubled, _DIFFERENT),
    "two thirds altered": _Case(_altered, _DIFFERENT),
    "two of three altered": _Case(_altered_between, _DIFFERENT),
    "cut again, --sample 5%": _Case(lambda values: values, _EQUAL, ("--sample", "5%")),
}


def _values(count: int) -> _Values:
    rng = random.Random(1)
    return [
        (FIRST_TIMESTAMP + number, (b"%d " % number + rng.randbytes(_RECORD_BYTES))[:_RECORD_BYTES])
        for number in range(count)
    ]


def _load(bootstrap: str, topic: str, codec: Codec, records_per_batch: int, values: _Values) -> None:
    create_topic(bootstrap, topic)
    records: Iterator[tuple[int, int, bytes]] = ((0, at, value) for at, value in values)
    load_values(bootstrap, topic, codec, records_per_batch, records)


def _run(settings: Settings) -> Section:
    source, destination = settings.clusters.pair(settings.scale)
    ours = {code.name: code for code in codes(settings.before).values()}
    values = _values(max(20_000, int(_RECORDS * settings.scale)))
    topic = "verify_records"
    _load(source.bootstrap, topic, "lz4", 500, values)
    figures: dict[str, dict[str, list[float]]] = {}
    for number, (case, made) in enumerate(_CASES.items()):
        copy = f"{topic}_copy_{number}"
        _load(destination.bootstrap, copy, "zstd", 333, made.copied(values))
        between = ["verify", "--from", source.bootstrap, "--to", destination.bootstrap, "--group", "none"]
        arguments = [*between, "--topics", topic, "--rename", f"{topic}={copy}", *made.options]
        runs = [arguments] * 2
        turns = in_turns(
            f"verify, {case}",
            ours,
            settings.repeat,
            partial(compare_twice, runs=runs, exit_code=made.exit_code),
        )
        figures |= {f"{case}, {name}": found for name, found in turns.items()}
        delete_topics(destination, copy)
    delete_topics(source, topic)
    text = (
        f"{len(values):,} records of {_RECORD_BYTES} bytes, lz4 in the source and cut again with zstd at the "
        "destination; without a position of a mirror. The first comparison of a process adds the memory."
    )
    return Section("`shoal verify` of records", text, figures)


VERIFY_RECORDS = Row(
    "verify-records", "cost of `shoal verify` for copies whose records it compares one by one", 5, _run
)
