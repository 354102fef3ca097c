"""The connection to a broker: how large an answer may be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.gateway.budget import Budget
from shoal.gateway.upstream import TooLarge, Upstream
from shoal.gateway.work import Work
from shoal.net.address import Address

MEGABYTE = 1 << 20


@dataclass
class Broker:
    """A connection to a broker whose answer claims a size."""

    size: int
    sizes: AnswerSizes
    address: Address = Address("broker", 9092)  # noqa: RUF009 (a tuple)

    def read_into(self, view: memoryview) -> int:
        return len(view)


class Patient:
    """A client that waits for its answer."""

    host = network = "127.0.0.1"

    def check_answer(self) -> None:
        pass

    check_open = check_answer


class Asked(Upstream):
    """A request was sent, and its answer begins."""

    def _begin_answer(self) -> int:
        return cast(Broker, self.connection).size


def asked(broker: Broker) -> Upstream:
    client = cast(Any, Patient())
    return Asked(cast(Any, broker), client, Work(client, Budget(1 << 30), lambda sentence: None))


def upstream(size: int, sizes: AnswerSizes = AnswerSizes()) -> Upstream:  # noqa: B008 (frozen)
    return asked(Broker(size, sizes))


def test_held_response_has_a_bound_that_a_property_raises() -> None:
    assert len(upstream(64 * MEGABYTE).receive()) == 64 * MEGABYTE
    with pytest.raises(TooLarge) as refused:
        upstream(64 * MEGABYTE + 1).receive()
    assert re.search(
        r"broker:9092.*67108865.*67108864.*shoal\.max\.answer\.bytes.*--max-decompressed-bytes",
        str(refused.value),
    )
    assert len(upstream(65 * MEGABYTE, AnswerSizes(answer_bytes=65 * MEGABYTE)).receive()) == 65 * MEGABYTE
    assert len(upstream(65 * MEGABYTE).receive(65 * MEGABYTE)) == 65 * MEGABYTE
