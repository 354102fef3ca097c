"""The state machine of a partition: each event in each state, and the diagrams that show it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from shoal.errors import PartitionStopped
from shoal.mirroring.task import partition_state
from shoal.mirroring.task.partition_state import TRANSITIONS, Event, PartitionState, StateMachine
from shoal.timing import DEFAULT_TIMING

_ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"
_EDGE = re.compile(r"^ +([A-Z_]+) --> ([A-Z_]+): ([a-z_]+)$", re.MULTILINE)


@pytest.mark.parametrize(("state", "event"), list(product(PartitionState, Event)))
def test_each_event_in_each_state_moves_or_raises(state: PartitionState, event: Event) -> None:
    machine = StateMachine(DEFAULT_TIMING, state)
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(RuntimeError, match=rf"{state.name}.*{event.value}"):
            machine.happens(event)
        after = state
    else:
        machine.happens(event)
    assert machine.current is after
    assert machine.is_aligned == (
        after
        in {PartitionState.ALIGNED, PartitionState.COPYING, PartitionState.STOPPING, PartitionState.DONE}
    )
    assert machine.is_over == (
        after in {PartitionState.DONE, PartitionState.STOPPED, PartitionState.HANDED_ON}
    )


@pytest.mark.parametrize(
    "text", [partition_state.__doc__, _ARCHITECTURE.read_text()], ids=["docstring", "architecture.md"]
)
def test_diagram_has_exactly_the_transitions_of_the_table(text: str) -> None:
    drawn = _EDGE.findall(text)
    assert sorted(drawn) == sorted(
        (before.name, after.name, event.value) for (before, event), after in TRANSITIONS.items()
    )


def test_stopped_and_handed_on_partitions_take_no_event() -> None:
    assert not {state for state, _ in TRANSITIONS} & {PartitionState.STOPPED, PartitionState.HANDED_ON}


def test_only_an_alignment_leads_to_copying() -> None:
    """A partition may send only after the destination's log end is known."""
    entered_by = {
        (before, event) for (before, event), after in TRANSITIONS.items() if after is PartitionState.ALIGNED
    }
    assert entered_by == {
        (PartitionState.NEW, Event.ALIGN),
        (PartitionState.UNALIGNED, Event.ALIGN),
        (PartitionState.ALIGNED, Event.MOVE_END),
        (PartitionState.STOPPING, Event.REFETCH),
        (PartitionState.DONE, Event.MOVE_END),
    }
    copying = {before for (before, _), after in TRANSITIONS.items() if after is PartitionState.COPYING}
    assert copying == {PartitionState.ALIGNED, PartitionState.COPYING}


def test_acknowledge_ends_the_pause_and_shortens_the_next() -> None:
    machine = StateMachine(DEFAULT_TIMING, PartitionState.ALIGNED)
    for _ in range(9):
        machine.wait("a leader")
    machine.acknowledge()
    assert (machine.current, machine.waiting_for) == (PartitionState.COPYING, None)
    assert machine.next_delay_s() <= 0.1


def test_hand_on_keeps_state_and_pause_for_the_heir() -> None:
    machine = StateMachine(DEFAULT_TIMING)
    machine.wait("a leader", 100.0)
    successor = machine.hand_on()
    assert machine.current is PartitionState.HANDED_ON
    assert (successor.current, successor.waiting_for, successor.is_due) == (
        PartitionState.NEW,
        "a leader",
        False,
    )


def test_refused_partition_keeps_the_reason_until_it_stops_or_fetches_again() -> None:
    error = PartitionStopped("topic", 0, 3, "reason")
    for event, after in (
        (Event.LOSE_TRACK, PartitionState.UNALIGNED),
        (Event.REFETCH, PartitionState.ALIGNED),
    ):
        machine = StateMachine(DEFAULT_TIMING, PartitionState.COPYING)
        machine.refuse(error)
        machine.acknowledge()
        assert (machine.current, machine.refusal) == (PartitionState.STOPPING, error)
        machine.happens(event)
        assert (machine.current, machine.refusal) == (after, None)
    machine.refuse(error)
    machine.stop(error)
    assert (machine.current, machine.refusal, machine.stopped) == (PartitionState.STOPPED, None, error)


def test_stop_during_a_pause_ends_it() -> None:
    machine = StateMachine(DEFAULT_TIMING)
    machine.wait("a leader", 100.0)
    machine.stop(PartitionStopped("topic", 0, 3, "reason"))
    assert (machine.current, machine.waiting_for) == (PartitionState.STOPPED, None)
