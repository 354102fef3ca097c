"""A few seconds of each campaign, minutes of each in the long tier, and the failures that they must find."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rig.process import peak_rss_of
from tests.broker.wire import Wire
from tests.hostile import attackers, clients, gateway
from tests.hostile.attackers import End, attack
from tests.hostile.bombs import bomb
from tests.hostile.clients import CLIENTS, COMMANDS, lie_to_all
from tests.hostile.gateway import SERVERS, Target, attack_server
from tests.hostile.inputs import draw_input
from tests.hostile.result import Result

SEED = 7

#: The server refuses these at once: the smoke test is to take seconds.
CHEAP_BOMBS = ("gigabytes claimed by snappy", "gigabytes claimed by zstd")


def last_of(results: Iterator[Result]) -> Result:
    """Return the last result; each must be without problems."""
    for result in results:
        assert result.problems == []
    return result


#: One server in each run; the one with logins, which takes longer, at night.
@pytest.mark.parametrize("name", ["gateway", pytest.param("gateway-pass-through", marks=pytest.mark.long)])
def test_server_survives_hostile_clients(name: str) -> None:
    requests = 300 if name == "gateway" else 120  # each connection logs in, and the server disconnects many
    with Target.started(name) as target:
        steps = attack_server(target, SEED, requests, step_requests=requests // 2, bombs=CHEAP_BOMBS)
        counts = last_of(steps).counts
    assert counts["requests"] == requests
    assert counts["answered"] > requests // 6
    assert counts["times served"] > 0
    assert counts["strangers"] == (0 if name == "gateway" else requests // 4)


def test_clients_survive_a_hostile_cluster() -> None:
    assert last_of(lie_to_all(SEED, 10, CLIENTS)).counts["lies"] >= 10


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "requests"), list(zip(SERVERS, (50_000, 5_000), strict=True)))
def test_server_survives_many_hostile_clients(name: str, requests: int) -> None:
    with Target.started(name) as target:
        steps = attack_server(target, SEED, requests, step_requests=requests // 10)
        assert last_of(steps).counts["requests"] == requests


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("lies", "victims"), [(300, CLIENTS), (20, COMMANDS)], ids=["clients", "commands"])
def test_clients_survive_many_wrong_responses(lies: int, victims: tuple[str, ...]) -> None:
    assert last_of(lie_to_all(SEED, lies, victims, first=1000)).counts["lies"] >= lies


#: A conversion takes up to three times the expanded batch, which is at most the default of
#: --max-produced-bytes (docs/gateway.md, "Memory and slow clients").
MOST_BYTES_OF_CONVERSION = 3 * (16 << 20)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_gateway_s_memory_does_not_grow_while_a_bomb_repeats() -> None:
    most_at_a_time, rounds = 16, 13
    with Target.started("gateway") as target:
        with Wire(target.broker.address) as wire:
            wire.create_topic("orders", 2)
        process = psutil.Process(target.process.process_id)
        before = process.memory_info().rss
        for _ in range(rounds):
            bombs = [
                bomb("messages of a wrapper of magic 0, gzip", number) for number in range(most_at_a_time)
            ]
            assert attack(target.address, iter(bombs), most_at_a_time).ends == {End.ANSWERED: most_at_a_time}
        peak, now = peak_rss_of(process.pid), process.memory_info().rss
    at_a_time = min(most_at_a_time, os.cpu_count() or 1)
    assert peak - before < at_a_time * MOST_BYTES_OF_CONVERSION
    assert now - before < MOST_BYTES_OF_CONVERSION


# Failures that the campaigns must find


def test_silent_server_is_reported_as_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attackers, "HANG_S", 0.3)
    waits_never = next(each for each in (draw_input(SEED, n) for n in itertools.count()) if each.api == 3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tally = attack(listener.getsockname(), iter([waits_never]), 1)
    assert tally.ends == {End.HUNG: 1}
    assert tally.hung == [str(waits_never)]


@pytest.mark.long
def test_traceback_and_kept_connection_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "BACK_S", 2)
    with Target.started("gateway") as target:
        steps = attack_server(target, SEED, 20, step_requests=10, bombs=CHEAP_BOMBS)
        assert next(steps).problems == []
        with target.process.errors.open("a") as log:
            log.write("Traceback (most recent call last):\n  boom\n")
        with socket.create_connection(target.address):
            printed, kept = next(steps).problems
    assert "boom" in printed
    assert "threads and sockets" in kept


def test_mirror_that_loses_a_record_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def victim(trial: object) -> tuple[str, int]:
        raise AssertionError("a record is missing")

    monkeypatch.setattr(clients, "VICTIMS", dict.fromkeys(clients.VICTIMS, victim))
    (result,) = lie_to_all(SEED, 1, CLIENTS)
    assert ["a record is missing" in each for each in result.problems] == [True]


@pytest.fixture(autouse=True)
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers keep their data in a directory that pytest removes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
