"""How a handler is made, and the memory that its batches keep."""

from __future__ import annotations

import pytest

from shoal.client.buffers import FetchedBytes
from shoal.client.consumer import RawRecord, TimestampType
from shoal.errors import ConfigError
from shoal.handlers import MirrorMakerMessageHandler
from shoal.mirroring.model.copy_options import Handling
from shoal.mirrormaker.handlers import load_handler
from shoal.mirrormaker.task import apart
from shoal.records import Codec


def batch_of(value: memoryview, max_timestamp: int = 0, topic: str = "orders") -> RawRecord:
    return RawRecord(topic, 0, 0, 0, 1, Codec.NONE, max_timestamp, TimestampType.CREATE_TIME, value, 0)


def test_waiting_records_do_not_keep_a_large_response_in_memory() -> None:
    answer = FetchedBytes(100_000)
    small, large = batch_of(memoryview(answer)[50:1_050]), batch_of(memoryview(answer)[:50_000])
    assert apart(large) is large
    copied = apart(small)
    assert copied.value == small.value
    assert copied.value.nbytes == 1_000
    assert copied.value.obj is not answer
    alone = batch_of(memoryview(b"alone"))
    assert apart(alone) is alone


class Initialised(MirrorMakerMessageHandler):
    args: str | None = "not called"

    def init(self, args: str | None) -> None:
        if args == "bad":
            raise ValueError("no such thing")
        self.args = args


class Constructed(MirrorMakerMessageHandler):
    def __init__(self, args: str = "none") -> None:
        self.args = args


def handling(handler: type, args: str | None) -> Handling:
    return Handling(f"{__name__}:{handler.__name__}", args, False, False, {}, {})


@pytest.mark.parametrize(
    ("handler", "args", "given"),
    [
        (Initialised, "a,b", "a,b"),
        (Initialised, None, None),
        (Constructed, "x", "x"),
        (Constructed, None, "none"),
    ],
)
def test_handler_receives_arguments_by_init_or_constructor(
    handler: type, args: str | None, given: str | None
) -> None:
    made = load_handler(handling(handler, args))
    assert isinstance(made, (Initialised, Constructed))
    assert made.args == given


def test_init_that_raises_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Initialised.*'bad'"):
        load_handler(handling(Initialised, "bad"))
