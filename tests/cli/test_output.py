"""The output of a mirror: incidents, lines of progress, waits, the summary, and JSON."""

import io
import json
import re
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from shoal.cli.live_report import LiveReport
from shoal.cli.output import stamp_lines
from shoal.cli.plain_report import JsonReport, PlainReport, summary_rows
from shoal.cli.report import progress_until_unread, report_to
from shoal.mirroring.model.incidents import Incident, IncidentKind
from shoal.mirroring.model.progress import GarbageCollection, HeldBack, Phase, Progress, Summary, line
from tests.snapshots import Texts

PROGRESS = Progress(
    elapsed_s=3.0,
    partitions=16,
    states={"up to date": 12},
    stopped={},
    waiting={},
    records=800,
    batches=8,
    bytes_in=9_000,
    bytes_out=8_000,
    records_per_s=1234.5,
    bytes_per_s=12_340_000.0,
    lag_records=200,
    remaining_s=62.0,
    decisions={"copy": 8},
    retries=0,
)

SUMMARY = Summary(
    group="shoal.a.b",
    topics={"a": "b"},
    elapsed_s=2.0,
    python_cpu_s=1.25,
    jvm_cpu_s=7.5,
    partitions=3,
    stopped={},
    warnings=("beware",),
    records=1_000,
    batches=10,
    bytes_in=9_000_000,
    bytes_out=8_000_000,
    decisions={"copy": 10, "drop control batch": 2},
    retries=0,
)


RETENTION = Incident(IncidentKind.SOURCE_RETENTION, "the log begins at 7", 3, True, "a-1")
RESET = Incident(IncidentKind.SOURCE_RESET, "it was created again", None, True, "a-2")
FOREIGN = Incident(IncidentKind.FOREIGN_RECORDS, "somebody else wrote", partition="a-0")


def test_incident_is_printed_once(capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    report = PlainReport()
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION)))
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION)))
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION, RESET)))
    told = [line for line in capsys.readouterr().err.splitlines() if "continued" in line]
    texts(told)


def test_earlier_incidents_are_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    report = PlainReport()
    report.progress(replace(PROGRESS, incidents=(RETENTION, RESET)))
    report.progress(replace(PROGRESS, incidents=(RESET, RETENTION), incidents_before=1))
    assert capsys.readouterr().err.count("continued after") == 3
    summary = replace(SUMMARY, incidents=(RETENTION,), incidents_before=1_000, lost_before=17)
    assert any(key == "continued" and "1,000" in value for key, value in summary_rows(summary))
    assert summary.lost == 17 + 3


def test_summary_with_lost_records_counts_them_and_has_exit_code_4(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    summary = replace(SUMMARY, incidents=(RETENTION, RESET))
    assert (summary.lost, summary.exit_code) == (3, 4)
    assert replace(summary, stopped={"a-0": "x"}).exit_code == 1
    assert replace(summary, interrupted=True).exit_code == 1
    PlainReport().summary(summary)
    texts(capsys.readouterr().out)
    JsonReport().summary(summary)
    printed = json.loads(capsys.readouterr().out)
    assert printed["lost"] == 3
    assert printed["incidents"][1]["lost"] is None


def test_line_has_partitions_lag_rates_and_time_left(texts: Texts) -> None:
    texts(line(PROGRESS))


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({"remaining_s": None}, "12.3 MB/s"),
        ({"remaining_s": 3_723.0}, "1:02:03 left"),
        ({"lag_records": 0}, "lag 0 records, 1,234 records/s, 12.3 MB/s"),
    ],
)
def test_line_ends_with_stops_and_waits(change: dict[str, Any], end: str) -> None:
    assert line(replace(PROGRESS, **change)).endswith(end)


TROUBLE = replace(
    PROGRESS,
    waiting={f"a-{number}": "x" for number in range(12)},
    stopped={"a-13": "y", "a-14": "y"},
    states={"up to date": 1, "behind": 1, "waiting": 12, "stopped": 2, "unknown": 0},
    lag_records=1_234_567,
    held_back_records=20,
)


def test_line_begins_with_stopped_and_waiting_and_its_counts_add_up(texts: Texts) -> None:
    shown = line(TROUBLE)
    texts(shown)
    assert sum(TROUBLE.states.values()) == TROUBLE.partitions


def test_terminal_has_a_bar_only_while_a_mirror_with_an_end_copies() -> None:
    assert "80%" in screen_of(replace(PROGRESS, once=True), 120)
    assert "%" not in screen_of(replace(PROGRESS, once=True), 60), "the line needs the room"
    assert "%" not in screen_of(replace(PROGRESS, once=True, phase="finding positions"), 120)
    assert "%" not in screen_of(PROGRESS, 120)


def screen_of(progress: Progress, width: int) -> str:
    """Return the output of one report on a terminal of some width."""
    screen = io.StringIO()
    with LiveReport(Console(file=screen, force_terminal=True, width=width, height=20)) as report:
        report.progress(progress)
    lines = screen.getvalue().replace("\r", "\n").splitlines()
    assert all(len(re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", each)) <= width for each in lines)
    return screen.getvalue()


def test_phases_of_the_start_are_printed_once_each(capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    passed = (Phase.CHECKING, Phase.STARTING_SPARK, Phase.STARTING_SPARK, Phase.COPYING)
    phases = [each.value for each in passed]
    for report in (PlainReport(), JsonReport()):
        for number, phase in enumerate(phases):
            report.progress(replace(PROGRESS, phase=phase, phase_s=float(number), elapsed_s=number / 10))
    out, err = capsys.readouterr()
    texts(err.splitlines())
    objects = [json.loads(text) for text in out.splitlines()]
    assert [(each["phase"], each["phase_s"]) for each in objects] == [
        (phases[0], 0.0),
        (phases[1], 1.0),
        (phases[3], 3.0),
    ]


def test_healed_partition_is_printed(capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    report = PlainReport()
    report.progress(replace(PROGRESS, stopped={"a-1": "bad batch", "a-2": "bad batch"}))
    report.progress(replace(PROGRESS, stopped={"a-2": "bad batch"}))
    texts(capsys.readouterr().err.splitlines()[1:])


def test_open_transaction_is_printed_once_with_its_held_records(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    report = PlainReport()
    since = time.time() - 61
    report.progress(
        replace(PROGRESS, held_back={"a-1": HeldBack(20, since), "a-2": HeldBack(1, time.time())})
    )
    report.progress(replace(PROGRESS, held_back={"a-1": HeldBack(25, since)}))
    texts(capsys.readouterr().err)


def test_lines_of_a_service_have_times_except_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(stamp_lines, is_service=False))
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    report_to(as_json=False, is_service=False).warning("beware")
    report_to(as_json=False, is_service=True).warning("beware")
    monkeypatch.setenv("JOURNAL_STREAM", "8:1234")
    report_to(as_json=False, is_service=True).warning("beware")
    plain, stamped, journal = capsys.readouterr().err.splitlines()
    assert plain == journal == "shoal: warning: beware"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ shoal: warning: beware", stamped)


def test_summary_has_reason_completeness_and_missing_records(texts: Texts) -> None:
    states = {"up to date": 1, "behind": 0, "waiting": 1, "stopped": 1, "unknown": 0}
    rows = dict(
        summary_rows(
            replace(
                SUMMARY,
                states=states,
                lag_records=1_020,
                lag_s=3.25,
                held_back_records=7,
                report="r.html",
                ended="stopped by SIGTERM",
            )
        )
    )
    assert rows["ended"] == "stopped by SIGTERM"
    texts(rows["up to date"])
    assert rows["lag"] == "1,020 records, 3.2 s"
    texts(rows["held back"])
    assert rows["report"] == "r.html"
    done = replace(SUMMARY, states={"up to date": 3, "stopped": 0})
    assert dict(summary_rows(done))["up to date"] == "yes"
    assert done.to_json_object()["up_to_date"] is True


def test_partitions_waiting_for_one_reason_share_a_row_of_the_summary(texts: Texts) -> None:
    waiting = {f"a-{number}": "the destination does not answer" for number in range(12)}
    rows = summary_rows(replace(SUMMARY, waiting=waiting, stopped={"b-0": "bad", "b-1": "bad"}))
    assert [row for row, _ in rows[-2:]] == ["stopped", "waiting"]
    texts(text for _, text in rows[-2:])


def test_summary_of_a_mirror_stopped_before_its_start_has_the_reason() -> None:
    ended = "stopped by SIGINT before anything was copied"
    summary = Summary.of_nothing(None, 1.5, ended, once=False)
    assert summary_rows(summary)[0] == ("ended", ended)
    assert summary.exit_code == 0
    assert Summary.of_nothing(None, 1.5, ended, once=True).exit_code == 1


def test_progress_on_a_pipe_is_a_line_per_interval(capsys: pytest.CaptureFixture[str]) -> None:
    report = PlainReport()
    for elapsed_s in (1, 9, 10, 11, 19, 21):
        report.progress(replace(PROGRESS, elapsed_s=elapsed_s, states={"up to date": elapsed_s}))
    out, err = capsys.readouterr()
    assert out == ""
    assert [text.split("/")[0] for text in err.splitlines()] == ["shoal: 10", "shoal: 21"]


def test_progress_without_a_change_is_a_line_every_ten_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    report = PlainReport()
    idle = replace(PROGRESS, records_per_s=0.0, bytes_per_s=0.0, remaining_s=None)
    for elapsed_s in range(10, 1300):
        report.progress(replace(idle, elapsed_s=elapsed_s, lag_records=200 if elapsed_s < 1000 else 0))
    lines = capsys.readouterr().err.splitlines()
    assert [text.split("lag ")[1].split()[0] for text in lines] == ["200", "200", "0"]


def test_stopped_and_waiting_partitions_are_printed_once(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    report = PlainReport()
    trouble = replace(
        PROGRESS, stopped={"a-1": "bad batch"}, waiting={"a-2": "no leader", "a-3": "no leader"}
    )
    report.progress(trouble)
    report.progress(trouble)
    report.progress(replace(PROGRESS, stopped=trouble.stopped))
    report.progress(trouble)
    texts(capsys.readouterr().err.splitlines())


def test_warning_with_line_breaks_is_printed_on_one_line(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    PlainReport().warning("first  line\n  second")
    texts(capsys.readouterr().err)


def test_json_output_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonReport() as report:
        report.warning("beware")
        for elapsed_s in (0.5, 0.9, 1.6):
            report.progress(replace(PROGRESS, elapsed_s=elapsed_s, waiting={"a-0": "x"}))
        report.summary(SUMMARY)
    out, err = capsys.readouterr()
    objects = [json.loads(text) for text in out.splitlines()]
    assert [(each["type"], each["elapsed_s"]) for each in objects] == [
        ("progress", 0.5),
        ("progress", 1.6),
        ("summary", 2.0),
    ]
    assert err.splitlines() == ["shoal: warning: beware", "shoal: a-0 waiting: x"]


def test_summary_is_a_table_on_stdout(capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    known = {
        "stopped": {"a-0": "bad batch"},
        "interrupted": True,
        "engines": ("Python", "native"),
        "jvm_gc": GarbageCollection(1_200, 3.25),
        "copying_s": 0.5,
        "log_file": "spark.log",
    }
    PlainReport().summary(replace(SUMMARY, **known))  # type: ignore[arg-type]
    texts(capsys.readouterr().out.splitlines())


def test_live_report_keeps_warnings_and_stops_above_the_line() -> None:
    screen = io.StringIO()
    with LiveReport(Console(file=screen, force_terminal=True, width=200)) as report:
        report.warning("[beware]")
        report.progress(replace(PROGRESS, stopped={"a-1": "bad batch"}))
    shown = screen.getvalue()
    assert "shoal: warning: [beware]\n" in shown.replace("\r", "").replace("\x1b[2K", "")
    assert "a-1 stopped: bad batch" in shown
    assert "12/16 up to date" in shown


def test_closed_stdout_requests_the_end() -> None:
    class Unread(PlainReport):
        def progress(self, progress: Progress) -> None:
            raise BrokenPipeError

    stop = threading.Event()
    progress_until_unread(PlainReport(), stop)(PROGRESS)
    assert not stop.is_set()
    progress_until_unread(Unread(), stop)(PROGRESS)
    assert stop.is_set()


def test_live_report_ends_with_the_summary_table(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveReport(Console(file=io.StringIO(), force_terminal=True)) as report:
        report.summary(SUMMARY)
    assert capsys.readouterr().out.startswith("topics       1 (3 partitions)\n")
