"""The driver's clock for windows that overlap, with the time in the test's hand."""

from __future__ import annotations

import pytest

from shoal.mirroring.model.window import WindowClock
from tests.clocks import Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def clock(time: Time) -> WindowClock:
    """A window of a minute that has lasted 55 s."""
    clock = WindowClock(60.0, time)
    clock.plan()
    clock.begin()
    time.now += 55
    return clock


def test_next_is_due_in_the_last_seconds_of_a_window(time: Time) -> None:
    clock = WindowClock(60.0, time)
    clock.plan()
    assert not clock.is_next_due
    clock.begin()
    time.now += 49
    assert not clock.is_next_due
    assert not clock.prepare()
    time.now += 2
    assert clock.is_next_due
    assert clock.prepare()
    assert not clock.is_next_due


def test_window_whose_successor_is_ready_ends_soon(clock: WindowClock) -> None:
    clock.hasten()
    assert clock.remaining_s == 5.0
    clock.prepare()
    clock.hasten()
    assert clock.remaining_s == 0.5
    clock.hasten()
    assert clock.remaining_s == 0.5


def test_lead_of_a_short_window_is_a_part_of_it(time: Time) -> None:
    assert WindowClock(2.0, time).lead_s == 0.5


def test_prepare_after_the_end_of_a_window_does_nothing(time: Time, clock: WindowClock) -> None:
    time.now += 5
    assert not clock.prepare()
    assert (clock.planned, clock.current) == (1, 1)


def test_prepared_window_has_all_of_its_time_and_does_not_disturb_the_current_one(
    time: Time, clock: WindowClock
) -> None:
    clock.prepare()
    assert (clock.planned, clock.current) == (2, 1)
    assert [clock.remaining_of(each) for each in (0, 2, 3)] == [0.0, 60.0, 0.0]
    clock.advance()
    assert clock.is_prepared(2)


def test_window_waits_for_its_successor_up_to_another_length(time: Time, clock: WindowClock) -> None:
    clock.prepare()
    assert clock.remaining_s == 65.0
    time.now += 64
    clock.hasten()
    assert clock.remaining_s == 0.5


def test_window_whose_successor_is_dismissed_ends_in_time(time: Time, clock: WindowClock) -> None:
    clock.prepare()
    assert clock.dismiss()
    assert clock.remaining_s == 5.0
    assert not clock.is_next_due
    time.now += 5
    assert clock.remaining_s == 0.0


def test_late_window_whose_successor_is_dismissed_ends_at_once(time: Time, clock: WindowClock) -> None:
    clock.prepare()
    time.now += 6
    assert clock.dismiss()
    assert clock.remaining_s == 0.0


def test_prepared_window_follows_when_the_current_one_is_over(time: Time, clock: WindowClock) -> None:
    clock.prepare()
    time.now += 65
    clock.advance()
    assert (clock.current, clock.is_prepared(2)) == (2, False)
    time.now += 3
    clock.begin()
    assert [clock.remaining_of(each) for each in (1, 2)] == [0.0, 60.0]


def test_prepared_window_follows_tasks_that_ended_before_their_time(clock: WindowClock) -> None:
    clock.prepare()
    clock.advance(over=0)
    assert clock.current == 1
    clock.advance(over=1)
    assert clock.current == 2


def test_news_dismiss_the_prepared_window_and_end_the_current_one(clock: WindowClock) -> None:
    clock.prepare()
    assert clock.end()
    assert (clock.remaining_s, clock.remaining_of(2)) == (0.0, 0.0)
    clock.advance()
    assert clock.current == 1
    assert not clock.is_next_due


def test_news_without_a_prepared_window_leave_none_due(clock: WindowClock) -> None:
    clock.end()
    assert not clock.is_next_due
    assert not clock.prepare()


def test_quiet_window_with_a_prepared_one_is_not_prolonged(clock: WindowClock) -> None:
    clock.prepare()
    assert not clock.prolong()
    assert clock.remaining_s == 65.0


def test_alignment_prolongs_a_window_and_dismisses_the_prepared_one(time: Time, clock: WindowClock) -> None:
    clock.prepare()
    assert clock.prolong(for_ever=True)
    assert [clock.remaining_of(each) for each in (1, 2)] == [60.0, 0.0]
    time.now += 55
    assert clock.prepare()
    assert clock.planned == 3


def test_plan_after_a_window_forgets_the_prepared_one(clock: WindowClock) -> None:
    clock.prepare()
    clock.plan()
    assert (clock.planned, clock.current, clock.is_prepared(2)) == (3, 3, False)
