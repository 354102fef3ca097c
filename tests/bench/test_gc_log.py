"""The pauses in a JVM's log of its garbage collections: lines of Java 17, G1 and the serial collector."""

import pytest

from bench.gc_log import Pause, pauses

G1 = """\
[2026-11-22T15:25:00.900+0000] Using G1
[2026-11-22T15:25:01.123+0000] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->5M(256M) 2.345ms
[2026-11-22T15:25:02.000+0000] GC(1) Concurrent Mark Cycle
[2026-11-22T15:25:02.500+0000] GC(1) Pause Remark 30M->30M(256M) 1.500ms
[2026-11-22T15:25:03.000+0000] GC(1) Concurrent Mark Cycle 1000.000ms
[2026-11-22T15:25:04.000+0000] GC(2) Pause Full (System.gc()) 40M->9M(256M) 25.000ms
"""


def test_pauses_of_g1_exclude_concurrent_phases() -> None:
    assert [each.seconds for each in pauses(G1)] == pytest.approx([0.002345, 0.0015, 0.025])


def test_pause_has_its_time_in_utc() -> None:
    line = "[2026-11-22T16:25:01.250+0100] GC(3) Pause Young (Allocation Failure) 26M->1M(92M) 5.000ms\n"
    assert list(pauses(line)) == [Pause(1795361101.25, 0.005)]


def test_partial_line_is_ignored() -> None:
    assert list(pauses("[2026-11-22T15:25:01.123+0000] GC(0) Pause Young (Normal) 24M->5M(25")) == []
