"""A few seconds of each campaign, minutes of each in the long tier, and tests of the observation."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rig.process import peak_rss_of
from tests.broker.wire import Wire
from tests.each_case import each_case
from tests.hostile import attackers, client_campaign, cluster_campaign
from tests.hostile.attackers import End, attack
from tests.hostile.bombs import BOMBS, bomb
from tests.hostile.client_campaign import SERVERS, ClientResult, Target, attack_server
from tests.hostile.cluster_campaign import ClusterResult, lie_to_all
from tests.hostile.command_campaign import CommandResult, lie_to_commands
from tests.hostile.inputs import draw_input
from tests.hostile.report import client_table, cluster_table
from tests.hostile.strangers import visit

SEED = 7

#: The server refuses these at once: the smoke test is to take seconds.
CHEAP_BOMBS = ("gigabytes claimed by snappy", "gigabytes claimed by zstd")


def attacked(name: str, requests: int, **options: object) -> ClientResult:
    result = ClientResult(name)
    with Target.started(name) as target:
        steps = attack_server(
            target,
            SEED,
            first=0,
            requests=requests,
            deadline=time.monotonic() + 3000,
            **options,  # type: ignore[arg-type]
        )
        for result in steps:
            assert result.problems == []
    return result


def lied_to(lies: int, first: int = 0) -> ClusterResult:
    result = ClusterResult()
    for result in lie_to_all(SEED, first=first, lies=lies, deadline=time.monotonic() + 3000):
        assert result.problems == []
    return result


#: One server in each run; those with logins, which take longer, at night.
@pytest.mark.parametrize(
    "name", [name if name == "gateway" else pytest.param(name, marks=pytest.mark.long) for name in SERVERS]
)
def test_server_survives_hostile_clients(name: str) -> None:
    has_login = name.startswith("gateway-")
    requests = 120 if has_login else 600  # each connection logs in, and the server disconnects many
    result = attacked(name, requests, step_requests=requests // 2, bombs=CHEAP_BOMBS)
    assert result.requests == requests
    assert result.ends[End.ANSWERED] > requests // 6
    assert result.served > 0
    assert result.strangers.total() == (requests // 4 if has_login else 0)
    assert f"| {name} | {SEED} | {requests} |" in client_table([result], SEED)


def test_clients_survive_a_hostile_cluster() -> None:
    result = lied_to(20)
    assert result.told.total() >= 20
    assert result.ends.total() == result.trials
    assert f"Seed {SEED}" in cluster_table(result, SEED)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SERVERS)
def test_server_survives_many_hostile_clients(name: str) -> None:
    requests = 5_000 if name.startswith("gateway-") else 50_000
    assert attacked(name, requests, step_requests=requests // 10).requests == requests


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_clients_survive_many_wrong_responses() -> None:
    assert lied_to(300, first=1000).told.total() >= 300


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_commands_survive_a_hostile_cluster() -> None:
    result = CommandResult()
    for result in lie_to_commands(SEED, first=0, runs=6, deadline=time.monotonic() + 3000):
        assert result.problems == []
    assert result.told.total() > 0


#: A conversion takes up to three times the expanded batch, which is at most the default of
#: --max-produced-bytes (docs/gateway.md, "Memory and slow clients").
MOST_BYTES_OF_CONVERSION = 3 * (16 << 20)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_gateway_s_memory_does_not_grow_while_a_bomb_repeats() -> None:
    clients, rounds = 16, 13
    with Target.started("gateway") as target:
        with Wire(target.processes[-1].address) as wire:
            wire.create_topic("orders", 2)
        _, before = memory_of(target.process.process_id)
        for _ in range(rounds):
            bombs = [bomb("messages of a wrapper of magic 0, gzip", number) for number in range(clients)]
            assert attack(target.address, iter(bombs), clients).ends == {End.ANSWERED: clients}
        peak, now = memory_of(target.process.process_id)
    at_a_time = min(clients, os.cpu_count() or 1)
    assert peak - before < at_a_time * MOST_BYTES_OF_CONVERSION
    assert now - before < MOST_BYTES_OF_CONVERSION


def memory_of(process_id: int) -> tuple[int, int]:
    """Return the highest and the current resident memory of a process, in bytes."""
    return peak_rss_of(process_id), psutil.Process(process_id).memory_info().rss


# Failures that the campaigns must find


@pytest.mark.long
@each_case("name", BOMBS, str)
def test_bomb_is_one_request_within_the_topic_s_limit(name: str) -> None:
    frame = bomb(name, 0).frame
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert len(frame) < 3 << 20


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, listener.getsockname()


def test_silent_server_is_reported_as_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attackers, "HANG_S", 0.3)
    waits_never = next(each for each in (draw_input(SEED, n) for n in itertools.count()) if each.api == 3)
    with listening() as (_, address):
        tally = attack(address, iter([waits_never]), 1)
    assert tally.ends == {End.HUNG: 1}
    assert tally.hung == [str(waits_never)]


@pytest.mark.long
def test_traceback_in_the_output_of_a_server_is_a_problem() -> None:
    with Target.started("gateway") as target:
        with target.process.errors.open("a") as log:
            log.write("Traceback (most recent call last):\n  boom\n")
        (result,) = attack_server(
            target, SEED, first=0, requests=10, step_requests=10, deadline=float("inf"), bombs=CHEAP_BOMBS
        )
    assert ["boom" in each for each in result.problems] == [True]


@pytest.mark.long
def test_stranger_served_is_a_problem() -> None:
    with Target.started("gateway") as target:
        visits = visit(target.address, SEED, 0, 30)
    assert any("answered to" in each for each in visits.problems)


@pytest.mark.long
@pytest.mark.parametrize("held", ["threads", "sockets"])
def test_excess_threads_or_sockets_are_a_problem(held: str) -> None:
    with Target.started("gateway" if held == "threads" else "gateway-pass-through") as target:
        target.most_connections = 2  # but it has admitted more, by the limit with which it started
        (result,) = attack_server(
            target, SEED, first=0, requests=20, step_requests=20, deadline=float("inf"), bombs=CHEAP_BOMBS
        )
    assert any(f"{held}: more than" in each for each in result.problems)


@pytest.mark.long
def test_connection_kept_by_a_server_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_campaign, "BACK_S", 2)
    with Target.started("gateway") as target:
        steps = attack_server(
            target, SEED, first=0, requests=20, step_requests=10, deadline=float("inf"), bombs=CHEAP_BOMBS
        )
        assert next(steps).problems == []
        with socket.create_connection(target.address):
            (problem,) = next(steps).problems
    assert re.search(r"did.*back", problem)


def test_mirror_that_loses_a_record_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def victim(trial: object, told: object) -> str:
        raise AssertionError("a record is missing")

    monkeypatch.setattr(cluster_campaign, "VICTIMS", dict.fromkeys(cluster_campaign.VICTIMS, victim))
    (result,) = lie_to_all(SEED, first=0, lies=1, deadline=float("inf"))
    assert ["missing" in each for each in result.problems] == [True]


@pytest.fixture(autouse=True)
def _room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers keep their data in a directory that pytest removes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
