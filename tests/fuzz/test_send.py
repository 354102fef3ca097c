"""Both senders, whose destination refuses, cuts, lies and lets the gate close: they end alike."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rig.authority import Authority
from shoal.client import send as module
from shoal.client.connection import Connection
from shoal.client.lot import Limits, Lot, Sent, open_gate
from shoal.client.security import Security, TlsSettings
from shoal.client.send import send
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError
from shoal.native import NATIVE, Native
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.records import ENTRY
from shoal_broker import Broker
from tests.fuzz.effort import effort
from tests.native.lockstep import replayed
from tests.native.send_lockstep import SendSchedule, linked, scheduled_send
from tests.native.sending import connected, lot_of, through_tls
from tests.native_path import needs_native

pytestmark = needs_native

_OLD_MS, _NEW_MS = 1000, 2000


def drawn_lots(draw: random.Random, value_bytes: int) -> list[Lot]:
    """Draw batches of some partitions of two topics, in one buffer or several, some of them old."""
    lots = []
    for number in range(draw.randint(1, 4)):
        lot = lot_of(
            number // 2,
            topic=number % 2,
            base_offset=draw.choice([0, 7]),
            newest_ms=draw.choice([None, _OLD_MS, _NEW_MS, _NEW_MS]),
            times_ms=draw.choices([_NEW_MS, _OLD_MS, -1], [30, 1, 1], k=draw.randint(5, 12)),
            together_bytes=draw.choice([0, 0, 250, 10_000]),
            values=[bytes(value_bytes)] * 2,
        )
        lots.append(in_several_buffers(lot, draw))
    return lots


def in_several_buffers(lot: Lot, draw: random.Random) -> Lot:
    (view,) = lot.batches
    buffers, start, end = [], 0, 0
    for size, *_ in ENTRY.iter_unpack(lot.entries):
        end += size
        if not draw.randrange(3):
            buffers.append(view[start:end])
            start = end
    return lot._replace(batches=[*buffers, view[start:]])


def kind_of(failure: ShoalError | None) -> type[ShoalError] | None:
    return None if failure is None else type(failure)


def send_by(native: Native | None, connection: Connection, *arguments: object) -> Sent:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NATIVE", native)
        return send(connection, *arguments)  # type: ignore[arg-type]


@given(st.integers(0, 2**64))
@effort(150)
def test_both_senders_send_and_count_the_same(seed: int) -> None:
    draw = random.Random(seed)
    # With the small one, the kernel takes a few requests at a time, the last of them in part.
    send_buffer = draw.choice([None, None, 4608])
    lots = drawn_lots(draw, 10 if send_buffer is None else 1000)
    limits = Limits(
        draw.choice([_OLD_MS, _OLD_MS, 0, _NEW_MS]), draw.choice([1, 400, 1 << 20]), draw.randint(1, 5)
    )
    with ExitStack() as stack:
        connection, ends = stack.enter_context(linked(send_buffer))
        schedule = SendSchedule(lots, limits, ends, draw)
        stack.enter_context(scheduled_send(schedule, ends))
        in_python = send_by(None, connection, lots, limits, ends.gate)
        sent = bytes(schedule.sent + ends.take())
        was_closed = connection.closed
    if schedule.landed is not None:
        assert in_python.landed == schedule.landed
    with linked(send_buffer) as (connection, ends):
        with replayed(schedule.events, ends) as sent_natively:
            natively = send_by(NATIVE, connection, lots, limits, ends.gate)
        assert natively[:2] == in_python[:2]
        assert kind_of(natively.failure) is kind_of(in_python.failure)
        assert connection.closed == was_closed
        assert sent_natively == sent


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Security]:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = tmp_path_factory.mktemp("tls") / "broker.pem"
    context.load_cert_chain(authority.issue("broker", "127.0.0.1").write_pem(path))
    return context, Security(TlsSettings(trusted=authority.pem))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@given(st.integers(0, 2**64))
@effort(8)
def test_both_senders_land_the_same_at_a_broker_with_and_without_tls(
    broker: Broker, tls: tuple[ssl.SSLContext, Security], seed: int
) -> None:
    results = []
    for native in (None, NATIVE):
        for is_tls in (False, True):
            results.append(landed_at(broker, tls if is_tls else None, native, random.Random(seed)))
    assert results == results[:1] * 4


def landed_at(
    broker: Broker, tls: tuple[ssl.SSLContext, Security] | None, native: Native | None, draw: random.Random
) -> tuple[Sent, list[int]]:
    """Send to new topics of which some partitions are refused; return the result, and the logs' ends."""
    with ExitStack() as stack:
        for name in ("topic", "other"):
            stack.callback(broker.topics.delete, broker.create_topic(name, 2))
        stack.callback(broker.faults.clear)
        for name in ("topic", "other"):
            if not draw.randrange(3):
                code = draw.choice([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE])
                effect: Literal["before", "after"] = draw.choice(["before", "after"])
                broker.faults.add(ApiKey.PRODUCE, error=code, effect=effect, topic=name, partition=0)
        lots = [lot._replace(base_offset=0) for lot in drawn_lots(draw, draw.choice([10, 40_000]))]
        limits = Limits(_OLD_MS, draw.choice([400, 1 << 20]), draw.randint(1, 5))
        address = Address(broker.host, broker.port)
        if tls is None:
            connection = stack.enter_context(Connection(address, client_id="shoal", timeout_s=60.0))
        else:
            context, security = tls
            listener = socket.create_server(("127.0.0.1", 0))
            there = Address(*listener.getsockname())
            connection = stack.enter_context(
                connected(lambda: through_tls(listener, context, address), there, security)
            )
        sent = send_by(native, connection, lots, limits, open_gate())
        assert sent.failure is None
        ends = [broker.log(*lot.partition).log_end_offset for lot in lots]
        for place, (lot, end) in enumerate(zip(lots, ends, strict=True)):
            batches = len(lot.entries) // ENTRY.size
            assert sent.landed[place] == batches or place in sent.refused
            assert 2 * sent.landed[place] <= end
        return sent, ends
