"""The state machine of a partition."""

from __future__ import annotations

import pytest

from shoal.errors import PartitionStopped
from shoal.mirroring.task.partition_state import PartitionState, StateMachine
from shoal.timing import DEFAULT_TIMING

WAITING, ALIGNING, COPYING, DONE, STOPPED = PartitionState
ERROR = PartitionStopped("topic", 0, 3, "reason")

#: A way to each state.
WAYS = {
    WAITING: [],
    ALIGNING: [ALIGNING],
    COPYING: [ALIGNING, COPYING],
    DONE: [ALIGNING, COPYING, DONE],
    STOPPED: [STOPPED],
}


def machine_in(state: PartitionState) -> StateMachine:
    machine = StateMachine(DEFAULT_TIMING)
    for each in WAYS[state]:
        machine.become(each)
    return machine


def test_partition_copies_only_after_an_alignment() -> None:
    """A partition may send only after the destination's log end is known."""
    with pytest.raises(RuntimeError, match="WAITING cannot become COPYING"):
        machine_in(WAITING).become(COPYING)
    machine = machine_in(COPYING)
    machine.become(WAITING)
    with pytest.raises(RuntimeError, match="WAITING cannot become COPYING"):
        machine.become(COPYING)


@pytest.mark.parametrize("state", PartitionState)
def test_stopped_partition_never_changes(state: PartitionState) -> None:
    with pytest.raises(RuntimeError, match=f"STOPPED cannot become {state.name}"):
        machine_in(STOPPED).become(state)


@pytest.mark.parametrize("state", [WAITING, ALIGNING, COPYING, DONE])
def test_partition_stops_in_any_state_and_keeps_the_reason(state: PartitionState) -> None:
    machine = machine_in(state)
    machine.wait("a leader", 100.0)
    machine.stop(ERROR)
    assert (machine.current, machine.stopped, machine.waiting_for) == (STOPPED, ERROR, None)
    assert machine.is_over
    assert not machine.is_aligned


def test_acknowledge_ends_the_pause_and_shortens_the_next() -> None:
    machine = machine_in(COPYING)
    for _ in range(9):
        machine.wait("a leader")
    machine.acknowledge()
    assert machine.waiting_for is None
    assert machine.next_delay_s() <= 0.1


def test_refused_partition_keeps_the_reason_until_it_is_aligned_again() -> None:
    machine = machine_in(COPYING)
    machine.refuse(ERROR)
    machine.acknowledge()
    assert (machine.current, machine.refusal) == (COPYING, ERROR)
    machine.become(WAITING)
    assert machine.refusal is None
