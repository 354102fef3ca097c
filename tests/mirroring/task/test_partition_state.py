"""The state machine of a partition: each event in each state, and the diagrams that show it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from shoal.errors import PartitionStopped
from shoal.mirroring.task import partition_state
from shoal.mirroring.task.partition_state import TRANSITIONS, Event, State, StateMachine

_ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"
_EDGE = re.compile(r"^ +([A-Z_]+) --> ([A-Z_]+): ([a-z_]+)$", re.MULTILINE)


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_each_event_in_each_state_moves_or_raises(state: State, event: Event) -> None:
    machine = StateMachine(state)
    after = TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(RuntimeError, match=f"in state {state.name} does not allow {event.value}"):
            machine.happens(event)
        after = state
    else:
        machine.happens(event)
    assert machine.current is after
    assert machine.is_aligned == (after in {State.ALIGNED, State.COPYING, State.STOPPING, State.DONE})
    assert machine.is_over == (after in {State.DONE, State.STOPPED, State.HANDED_ON})


@pytest.mark.parametrize(
    "text", [partition_state.__doc__, _ARCHITECTURE.read_text()], ids=["docstring", "architecture.md"]
)
def test_diagram_has_exactly_the_transitions_of_the_table(text: str) -> None:
    drawn = _EDGE.findall(text)
    assert sorted(drawn) == sorted(
        (before.name, after.name, event.value) for (before, event), after in TRANSITIONS.items()
    )


def test_stopped_and_handed_on_partitions_take_no_event() -> None:
    assert not {state for state, _ in TRANSITIONS} & {State.STOPPED, State.HANDED_ON}


def test_only_an_alignment_leads_to_copying() -> None:
    """A partition may send only after the destination's log end is known."""
    entered_by = {(before, event) for (before, event), after in TRANSITIONS.items() if after is State.ALIGNED}
    assert entered_by == {
        (State.NEW, Event.ALIGN),
        (State.UNALIGNED, Event.ALIGN),
        (State.ALIGNED, Event.MOVE_END),
        (State.STOPPING, Event.REFETCH),
        (State.DONE, Event.MOVE_END),
    }
    copying = {before for (before, _), after in TRANSITIONS.items() if after is State.COPYING}
    assert copying == {State.ALIGNED, State.COPYING}


def test_acknowledge_ends_the_pause_and_shortens_the_next() -> None:
    machine = StateMachine(State.ALIGNED)
    for _ in range(9):
        machine.wait("a leader")
    machine.acknowledge()
    assert (machine.current, machine.waiting_for) == (State.COPYING, None)
    assert machine.next_delay_s() <= 0.1


def test_hand_on_keeps_state_and_pause_for_the_heir() -> None:
    machine = StateMachine()
    machine.wait("a leader", 100.0)
    heir = machine.hand_on()
    assert machine.current is State.HANDED_ON
    assert (heir.current, heir.waiting_for, heir.is_due) == (State.NEW, "a leader", False)


def test_refused_partition_keeps_the_reason_until_it_stops_or_fetches_again() -> None:
    error = PartitionStopped("topic", 0, 3, "reason")
    for event, after in ((Event.LOSE_TRACK, State.UNALIGNED), (Event.REFETCH, State.ALIGNED)):
        machine = StateMachine(State.COPYING)
        machine.refuse(error)
        machine.acknowledge()
        assert (machine.current, machine.refusal) == (State.STOPPING, error)
        machine.happens(event)
        assert (machine.current, machine.refusal) == (after, None)
    machine.refuse(error)
    machine.stop(error)
    assert (machine.current, machine.refusal, machine.stopped) == (State.STOPPED, None, error)


def test_stop_during_a_pause_ends_it() -> None:
    machine = StateMachine()
    machine.wait("a leader", 100.0)
    machine.stop(PartitionStopped("topic", 0, 3, "reason"))
    assert (machine.current, machine.waiting_for) == (State.STOPPED, None)
