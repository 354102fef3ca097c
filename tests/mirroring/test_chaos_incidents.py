"""
Others write to the destination, its tail is lost repeatedly, and the recovering task dies at any step.

With the policies set to continue, the mirror's own records have to equal the source's history. A seed that
fails is a test to be written down in
``test_incidents`` or ``task/resume/test_resume``, in the few steps that matter.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from tests import batches
from tests.two_brokers import (
    NOW_MS,
    Content,
    History,
    Killed,
    Mortal,
    TwoBrokers,
    Watched,
    batches_of,
    let_pass,
    lose_tail,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("quick_retries")]

DAY_MS = 86_400_000

#: No value of a history begins so.
FOREIGN = b"of somebody else"


def write_foreign_records(brokers: TwoBrokers, count: int) -> None:
    log = brokers.destination.log("topic")
    log.store(memoryview(batches.batch([FOREIGN] * count, base_offset=log.log_end_offset)))


def lose_some_batches(brokers: TwoBrokers, dice: random.Random) -> None:
    """Take up to three batches from the destination's end."""
    found = batches_of(brokers.destination.log("topic"))
    lost = dice.randint(0, min(3, len(found)))
    if lost:
        lose_tail(brokers.destination, "topic", found[-lost].header.base_offset)


def ours(brokers: TwoBrokers) -> list[Content]:
    return [record for record in brokers.copied() if record.value != FOREIGN]


def go_on(history: History, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 3)):
        if dice.random() < 0.3:
            history.holed(5, [1, 3])
        else:
            history.plain(*[dice.randint(1, 4) for _ in range(dice.randint(1, 3))])


def lost(control: Watched) -> int:
    """Return how many records are reported as lost for the destination."""
    return sum(
        incident[2]
        for report in control.reports
        for each in report["partitions"]
        for incident in each["incidents"]
    )


def incidents_happen(brokers: TwoBrokers, dice: random.Random) -> None:
    """Let others write, the tail be lost and our producer be forgotten, up to two of it."""
    for _ in range(dice.choice([0, 1, 1, 1, 2])):
        match dice.randrange(3):
            case 0:
                write_foreign_records(brokers, dice.randint(1, 4))
            case 1:
                lose_some_batches(brokers, dice)
            case _:
                brokers.destination.log("topic").forget_expired_producers(NOW_MS, DAY_MS)


def begin(brokers: TwoBrokers, dice: random.Random) -> tuple[TwoBrokers, History]:
    """Mirror the first records; return brokers with all policies set to go on."""
    (history,) = brokers.topic()
    history.base_timestamp = dice.choice([NOW_MS, NOW_MS - 30 * DAY_MS])
    go_on(history, dice)
    brokers.run()
    return brokers.with_settings(continue_on=frozenset(IncidentKind)), history


def recover_and_die_at_random(brokers: TwoBrokers, seed: int) -> None:
    dice = random.Random(seed)
    brokers, history = begin(brokers, dice)
    for _ in range(6):
        go_on(history, dice)
        incidents_happen(brokers, dice)
        if dice.random() < 0.5:
            let_pass(brokers.destination, ApiKey.PRODUCE, dice.randint(0, 3))
            brokers.destination.faults.add(ApiKey.PRODUCE, drop=dice.choice(["before", "within", "after"]))
        control = Mortal(dice.randint(0, 12)) if dice.random() < 0.8 else Watched()
        with suppress(Killed):
            assert brokers.start(control=control).result(40.0).stopped == ()
        brokers.destination.faults.clear()
        assert lost(control) == 0
        brokers = brokers.with_settings(commit_interval_ms=dice.choice([0, 60_000]))
    control = Watched()
    result = brokers.start(control=control).result(40.0)
    assert (result.complete, result.stopped, lost(control)) == (True, (), 0)
    assert ours(brokers) == history.committed


def recover_while_the_source_deletes(brokers: TwoBrokers, seed: int) -> None:
    dice = random.Random(seed)
    brokers, history = begin(brokers, dice)
    reported = 0
    for _ in range(6):
        go_on(history, dice)
        incidents_happen(brokers, dice)
        if dice.random() < 0.4:
            history.log.delete_records(dice.randint(history.log.log_start_offset, history.next_offset))
        control = Watched()
        result = brokers.start(control=control).result(40.0)
        assert (result.complete, result.stopped) == (True, ())
        reported += lost(control)
        found = ours(brokers)
        missing = [record for record in history.committed if record not in found]
        assert found == [record for record in history.committed if record not in missing]
        assert reported >= len(missing)


def recover_while_the_copy_deletes(brokers: TwoBrokers, seed: int) -> None:
    """Let others write and retention delete, committed records or not; no broker forgets its producers."""
    dice = random.Random(seed)
    brokers, history = begin(brokers, dice)
    log = brokers.destination.log("topic")
    for _ in range(6):
        go_on(history, dice)
        if dice.random() < 0.7:
            write_foreign_records(brokers, dice.randint(1, 4))
        if dice.random() < 0.7:
            let_pass(brokers.destination, ApiKey.PRODUCE, dice.randint(0, 3))
            brokers.destination.faults.add(ApiKey.PRODUCE, drop=dice.choice(["before", "within", "after"]))
        control = Mortal(dice.randint(0, 12)) if dice.random() < 0.8 else Watched()
        with suppress(Killed):
            assert brokers.start(control=control).result(40.0).stopped == ()
        brokers.destination.faults.clear()
        if dice.random() < 0.5:
            write_foreign_records(brokers, 1)
        if dice.random() < 0.5:
            ends = [each.header.next_offset for each in batches_of(log)]
            log.delete_records(dice.choice([log.log_start_offset, *ends]))
        brokers = brokers.with_settings(commit_interval_ms=dice.choice([0, 60_000]))
    result = brokers.start().result(40.0)
    assert (result.complete, result.stopped) == (True, ())
    left = ours(brokers)
    assert left == history.committed[len(history.committed) - len(left) :]


#: Seeds beyond the first tier's.
MANY_SEEDS = [pytest.param(seed, marks=pytest.mark.long) for seed in range(1_000, 1_300)]


@pytest.mark.parametrize("seed", [*range(20), *MANY_SEEDS])
def test_own_records_equal_the_history_after_incidents(brokers: TwoBrokers, seed: int) -> None:
    recover_and_die_at_random(brokers, seed)


@pytest.mark.parametrize("seed", [*range(20), *MANY_SEEDS])
def test_own_records_that_are_left_equal_the_history_s_end_after_deletions(
    brokers: TwoBrokers, seed: int
) -> None:
    recover_while_the_copy_deletes(brokers, seed)


@pytest.mark.parametrize("seed", [*range(15), *MANY_SEEDS])
def test_records_lost_on_both_sides_are_reported(brokers: TwoBrokers, seed: int) -> None:
    recover_while_the_source_deletes(brokers, seed)
