import io
import json
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from shoal.cli.report import (
    JsonReport,
    LiveReport,
    PlainReport,
    line,
    progress_until_unread,
    summary_rows,
    table,
)
from shoal.mirroring.progress import PartitionIncident, Progress, Summary

PROGRESS = Progress(
    elapsed_s=3.0,
    partitions=16,
    done=12,
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


RETENTION = PartitionIncident("a-1", "source-retention", "the log begins at 7", 3, continued=True)
RESET = PartitionIncident("a-2", "source-reset", "it was created again", None, continued=True)
FOREIGN = PartitionIncident("a-0", "foreign-records", "somebody else wrote", 0, continued=False)


def test_an_incident_is_told_once_and_those_that_stopped_a_partition_as_that(capsys):
    report = PlainReport()
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION)))
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION)))
    report.progress(replace(PROGRESS, incidents=(FOREIGN, RETENTION, RESET)))
    told = [line for line in capsys.readouterr().err.splitlines() if "went on" in line]
    assert told == [
        "shoal: a-1 went on after source-retention (3 lost): the log begins at 7",
        "shoal: a-2 went on after source-reset (an unknown number lost): it was created again",
    ]


def test_incidents_that_came_before_those_that_are_told_are_not_told_again(capsys):
    report = PlainReport()
    report.progress(replace(PROGRESS, incidents=(RETENTION, RETENTION)))
    report.progress(replace(PROGRESS, incidents=(RETENTION, RETENTION), incidents_before=1))
    assert capsys.readouterr().err.count("went on after") == 3
    summary = replace(SUMMARY, incidents=(RETENTION,), incidents_before=1_000, lost_before=17)
    assert ("went on", "after 1,000 incidents before these") in summary_rows(summary)
    assert summary.lost == 17 + RETENTION.lost


def test_a_summary_counts_what_is_lost_and_says_so_by_its_exit_code(capsys):
    summary = replace(SUMMARY, incidents=(RETENTION, RESET))
    assert (summary.lost, summary.exit_code) == (3, 4)
    assert replace(summary, stopped={"a-0": "x"}).exit_code == 1
    assert replace(summary, interrupted=True).exit_code == 1
    PlainReport().summary(summary)
    assert "a-1 after source-retention (3 lost): the log begins at 7" in capsys.readouterr().out
    JsonReport().summary(summary)
    printed = json.loads(capsys.readouterr().out)
    assert printed["lost"] == 3
    assert printed["incidents"][1]["lost"] is None


def test_a_line_has_partitions_rates_lag_and_time_left():
    assert line(PROGRESS) == "12/16 partitions, 1,234 records/s, 12.3 MB/s, lag 200 records, 1:02 left"


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({"remaining_s": None}, "lag 200 records"),
        ({"remaining_s": 3_723.0}, "1:02:03 left"),
        ({"lag_records": 0}, "lag 0 records"),
        ({"waiting": {"a-0": "x"}, "stopped": {"a-1": "y", "a-2": "y"}}, "1 waiting, 2 stopped"),
    ],
)
def test_a_line_ends_with_what_there_is_to_say(change, end):
    assert line(replace(PROGRESS, **change)).endswith(end)


def test_on_a_pipe_a_line_comes_now_and_then(capsys):
    report = PlainReport(interval_s=10)
    for elapsed_s in (1, 9, 10, 11, 19, 21):
        report.progress(replace(PROGRESS, elapsed_s=elapsed_s, done=elapsed_s))
    out, err = capsys.readouterr()
    assert out == ""
    assert [text.split("/")[0] for text in err.splitlines()] == ["shoal: 10", "shoal: 21"]


def test_a_stopped_and_a_waiting_partition_are_told_once(capsys):
    report = PlainReport()
    trouble = replace(
        PROGRESS, stopped={"a-1": "bad batch"}, waiting={"a-2": "no leader", "a-3": "no leader"}
    )
    report.progress(trouble)
    report.progress(trouble)
    report.progress(replace(PROGRESS, stopped=trouble.stopped))
    report.progress(trouble)
    assert capsys.readouterr().err.splitlines() == [
        "shoal: a-1 stopped: bad batch",
        "shoal: a-2, a-3 waiting: no leader",
        "shoal: a-2, a-3 waiting: no leader",
    ]


def test_many_partitions_are_not_all_named(capsys):
    PlainReport().progress(replace(PROGRESS, waiting={f"a-{number}": "no leader" for number in range(7)}))
    assert capsys.readouterr().err == "shoal: a-0, a-1, a-2, a-3, a-4 and 2 more waiting: no leader\n"


def test_a_sentence_stays_on_one_line(capsys):
    PlainReport().warning("first  line\n  second")
    assert capsys.readouterr().err == "shoal: warning: first line\n"


def test_json_is_one_object_a_line_and_nothing_else_on_stdout(capsys):
    with JsonReport(interval_s=1) as report:
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


def test_the_json_summary_has_the_exit_code_and_the_rate(capsys):
    JsonReport().summary(replace(SUMMARY, stopped={"a-0": "bad"}))
    summary = json.loads(capsys.readouterr().out)
    assert (summary["exit_code"], summary["bytes_per_s"], summary["warnings"]) == (1, 4_000_000.0, ["beware"])


def test_the_summary_is_a_table_on_stdout(capsys):
    PlainReport().summary(replace(SUMMARY, stopped={"a-0": "bad batch"}))
    assert capsys.readouterr().out.splitlines() == [
        "topics       1 (3 partitions)",
        "records      1,000",
        "batches      10",
        "bytes in     9,000,000",
        "bytes out    8,000,000",
        "decisions    copy 10, drop control batch 2",
        "elapsed      2.0 s",
        "MB/s         4.0",
        "CPU-seconds  1.2 Python, 7.5 JVM",
        "retries      0",
        "group        shoal.a.b",
        "stopped      a-0: bad batch",
    ]


def test_the_time_of_copying_is_told_apart_from_sparks_start(capsys):
    summary = replace(SUMMARY, copying_s=0.5)
    PlainReport().summary(summary)
    shown = capsys.readouterr().out
    assert "elapsed      2.0 s, of which 0.5 s copying\n" in shown
    assert "MB/s         16.0\n" in shown


def test_an_interrupted_copy_says_so_and_where_sparks_log_is(capsys):
    summary = replace(SUMMARY, interrupted=True, log_file="spark.log")
    PlainReport().summary(summary)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Spark's log  spark.log",
        "interrupted  not everything was copied; run it again to go on",
    ]
    assert summary.exit_code == 1


def test_a_terminal_shows_a_live_line_and_keeps_what_must_not_be_missed():
    screen = io.StringIO()
    with LiveReport(Console(file=screen, force_terminal=True, width=200)) as report:
        report.warning("[beware]")
        report.progress(replace(PROGRESS, stopped={"a-1": "bad batch"}))
    shown = screen.getvalue()
    assert "shoal: warning: [beware]\n" in shown.replace("\r", "").replace("\x1b[2K", "")
    assert "a-1 stopped: bad batch" in shown
    assert "12/16 partitions" in shown


def test_the_live_report_ends_with_the_same_table(capsys):
    with LiveReport(Console(file=io.StringIO(), force_terminal=True)) as report:
        report.summary(SUMMARY)
    assert capsys.readouterr().out.startswith("topics       1 (3 partitions)\n")


def test_where_nobody_reads_any_more_an_end_is_asked_for():
    class Unread(PlainReport):
        def progress(self, progress):
            raise BrokenPipeError

    stop = threading.Event()
    progress_until_unread(PlainReport(), stop)(PROGRESS)
    assert not stop.is_set()
    progress_until_unread(Unread(), stop)(PROGRESS)
    assert stop.is_set()


def test_a_table_has_aligned_columns():
    assert table([("a", "1"), ("long", "2")]) == "a     1\nlong  2"
