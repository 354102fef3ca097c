"""A few seconds of each campaign, minutes of each in the long tier, and the failures that they must find."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import pytest

from tests.hostile import attackers, clients, gateway
from tests.hostile.attackers import End, attack
from tests.hostile.clients import CLIENTS, COMMANDS, lie_to_all
from tests.hostile.gateway import attack_gateway
from tests.hostile.inputs import draw_input
from tests.hostile.result import Result
from tests.nights import night_seed

SEED = 7


def last_of(results: Iterator[Result]) -> Result:
    """Return the last result; each must be without problems."""
    for result in results:
        assert result.problems == []
    return result


def test_clients_survive_a_hostile_cluster() -> None:
    assert last_of(lie_to_all(SEED, 10, CLIENTS)).counts["lies"] >= 10


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("lies", "victims"), [(300, CLIENTS), (20, COMMANDS)], ids=["clients", "commands"])
def test_clients_survive_many_wrong_responses(lies: int, victims: tuple[str, ...]) -> None:
    assert last_of(lie_to_all(night_seed(), lies, victims)).counts["lies"] >= lies


def test_gateway_survives_hostile_requests() -> None:
    assert last_of(attack_gateway(SEED, 300)).counts["requests"] == 300


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_gateway_survives_many_hostile_requests() -> None:
    assert last_of(attack_gateway(night_seed(), 20_000)).counts["requests"] == 20_000


# Failures that the campaigns must find


def test_gateway_that_needs_more_memory_than_its_options_allow_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway, "most_bytes", lambda limits: -1)
    (result,) = attack_gateway(SEED, 100)
    assert result.problems == ["it needed more memory than its options allow"]


def test_silent_server_is_reported_as_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attackers, "HANG_S", 0.3)
    waits_never = next(each for each in (draw_input(SEED, n) for n in itertools.count()) if each.api == 3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tally = attack(listener.getsockname(), iter([waits_never]), 1)
    assert tally.ends == {End.HUNG: 1}
    assert tally.hung == [str(waits_never)]


def test_mirror_that_loses_a_record_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def victim(trial: object) -> tuple[str, int]:
        raise AssertionError("a record is missing")

    monkeypatch.setattr(clients, "VICTIMS", dict.fromkeys(clients.VICTIMS, victim))
    (result,) = lie_to_all(SEED, 1, CLIENTS)
    assert ["a record is missing" in each for each in result.problems] == [True]
