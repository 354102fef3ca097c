"""Troubles at offsets: how often each is met, and when one ends."""

from __future__ import annotations

from shoal.mirroring.task.trouble import Trouble, Troubles
from shoal.timing import Timing


def test_trouble_is_counted_by_offset_and_sort() -> None:
    troubles = Troubles(Timing())
    assert [troubles.meet(5, Trouble.EXPLAINED).times for _ in range(2)] == [1, 2]
    assert troubles.meet(5, Trouble.UNEXPLAINED).times == 1
    assert troubles.meet(6, Trouble.EXPLAINED).times == 1


def test_trouble_before_an_acknowledged_offset_ends() -> None:
    troubles = Troubles(Timing())
    for offset in (4, 5):
        troubles.meet(offset, Trouble.EXPLAINED)
    troubles.end_before(5)
    assert troubles.at(4, Trouble.EXPLAINED) is None
    assert troubles.at(5, Trouble.EXPLAINED) is not None
    troubles.clear()
    assert troubles.at(5, Trouble.EXPLAINED) is None


def test_refusal_long_after_another_is_the_first_of_its_cause_and_silence_goes_on() -> None:
    troubles = Troubles(Timing(forget_refusal_s=0.0))
    for trouble, times in ((Trouble.EXPLAINED, 1), (Trouble.SILENCE, 2)):
        troubles.meet(5, trouble)
        assert troubles.meet(5, trouble).times == times


def test_time_between_two_that_are_far_apart_counts_in_part() -> None:
    troubles = Troubles(Timing(most_between_answers_s=0.0))
    troubles.meet(5, Trouble.SILENCE)
    assert troubles.meet(5, Trouble.SILENCE).lasted_s == 0.0
