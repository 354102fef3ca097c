"""The proxies of the trials, in front of the embedded broker."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from rig.cluster import ProxiedPort
from rig.ports import free_port
from rig.proxy import Disturbance, Proxies, Step
from shoal_broker import Broker

API_VERSIONS = 18
LIST_GROUPS = 16

#: Header v1: API key, version, correlation id, a null client id.
REQUESTS = {key: struct.pack(">ihhih", 10, key, 0, 7, -1) for key in (API_VERSIONS, LIST_GROUPS)}


@pytest.fixture
def proxies() -> Iterator[Proxies]:
    with Broker() as broker, Proxies({1: ProxiedPort(free_port(), broker.port)}) as started:
        yield started


def connect(proxies: Proxies) -> socket.socket:
    host, port = proxies.bootstrap.split(":")
    connected = socket.create_connection((host, int(port)), 10)
    connected.settimeout(10)
    return connected


def ask(proxies: Proxies, api_key: int = API_VERSIONS) -> bytes:
    """Return all bytes before the connection ends, or a whole response."""
    with connect(proxies) as client:
        client.sendall(REQUESTS[api_key])
        found = b""
        try:
            while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4]):
                received = client.recv(65_536)
                if not received:
                    break
                found += received
        except ConnectionResetError:
            return b"reset"
        return found


def test_undisturbed_requests_pass(proxies: Proxies) -> None:
    answer = ask(proxies)
    assert len(answer) == 4 + int.from_bytes(answer[:4])
    assert answer[4:8] == struct.pack(">i", 7)
    assert proxies.wait_for_responses(API_VERSIONS, 1, timeout_s=10)
    assert proxies.requests(API_VERSIONS) == 1


@pytest.mark.parametrize("body", [b"", b"\x00"])
def test_proxy_hangs_up_on_a_frame_without_an_api_key(proxies: Proxies, body: bytes) -> None:
    with connect(proxies) as client:
        client.sendall(struct.pack(">i", len(body)) + body)
        assert client.recv(1) == b""


@pytest.mark.parametrize("step", list(Step))
def test_disturbance_cuts_the_connection_at_its_step(proxies: Proxies, step: Step) -> None:
    whole = ask(proxies)
    proxies.disturb(Disturbance(API_VERSIONS, step))
    expected = whole[: len(whole) // 2] if step is Step.WITHIN_RESPONSE else b""
    assert ask(proxies) == expected
    assert ask(proxies) == whole  # only once, as planned


@pytest.mark.parametrize("step", [Step.BEFORE_RESPONSE, Step.WITHIN_RESPONSE])
def test_request_cut_in_its_response_was_answered_by_the_broker(proxies: Proxies, step: Step) -> None:
    proxies.disturb(Disturbance(API_VERSIONS, step))
    ask(proxies)
    assert proxies.wait_for_responses(API_VERSIONS, 1, timeout_s=10)


@pytest.mark.parametrize("step", [Step.BEFORE_REQUEST, Step.WITHIN_REQUEST])
def test_request_cut_before_the_broker_is_not_answered(proxies: Proxies, step: Step) -> None:
    proxies.disturb(Disturbance(API_VERSIONS, step))
    ask(proxies)
    ask(proxies, LIST_GROUPS)
    assert proxies.wait_for_responses(LIST_GROUPS, 1, timeout_s=10)
    assert proxies.requests(API_VERSIONS) == 1
    assert proxies.responses(API_VERSIONS) == 0


def test_requests_in_flight_are_counted_also_if_they_are_not_read_yet(proxies: Proxies) -> None:
    assert proxies.most_in_flight(API_VERSIONS) == 0
    ask(proxies)
    assert proxies.most_in_flight(API_VERSIONS) == 1
    with connect(proxies) as client:
        client.sendall(3 * REQUESTS[API_VERSIONS])
        assert proxies.wait_for_responses(API_VERSIONS, 4, timeout_s=10)
    assert proxies.most_in_flight(API_VERSIONS) == 3


def test_cut_can_reset_the_connection(proxies: Proxies) -> None:
    proxies.disturb(Disturbance(API_VERSIONS, Step.BEFORE_RESPONSE, reset=True))
    assert ask(proxies) == b"reset"


def test_disturbance_applies_to_its_api_after_its_count(proxies: Proxies) -> None:
    proxies.disturb(Disturbance(API_VERSIONS, Step.BEFORE_REQUEST, after=1, times=2))
    assert [bool(ask(proxies, key)) for key in (API_VERSIONS, LIST_GROUPS, API_VERSIONS)] == [
        True,
        True,
        False,
    ]
    assert [bool(ask(proxies)) for _ in range(2)] == [False, True]


@pytest.mark.parametrize("step", [Step.BEFORE_REQUEST, Step.WITHIN_REQUEST, Step.WITHIN_RESPONSE])
def test_stalled_bytes_arrive_whole(proxies: Proxies, step: Step) -> None:
    whole = ask(proxies)
    proxies.disturb(Disturbance(API_VERSIONS, step, stall_s=0.2, cut=False))
    assert ask(proxies) == whole


@pytest.mark.parametrize("late", [False, True])
def test_request_of_a_disconnected_sender_arrives_only_if_late(proxies: Proxies, late: bool) -> None:
    # If it is not late, it ends when the client disconnects, before the end of the stall.
    stall_s = 0.5 if late else 30.0
    proxies.disturb(Disturbance(API_VERSIONS, Step.BEFORE_REQUEST, stall_s=stall_s, cut=False, late=late))
    with connect(proxies) as client:
        client.sendall(REQUESTS[API_VERSIONS])
    assert proxies.wait_for_responses(API_VERSIONS, 1, timeout_s=20 if late else 1) is late
