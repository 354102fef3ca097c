"""Text from a hostile cluster reaches no terminal and no log with its control characters."""

from __future__ import annotations

import io
import json
import logging
import pickle
import traceback
import urllib.request
from pathlib import Path

import pytest
from rich.console import Console

from shoal.cli.live_report import LiveReport
from shoal.cli.output import say, table, warn
from shoal.errors import (
    AccessRefused,
    BrokerError,
    ConfigError,
    Disconnected,
    PartitionStopped,
    ProtocolError,
    ShoalError,
)
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About
from shoal.mirroring.monitoring.shown import exposition
from shoal.net.address import Address
from shoal.printable import logger, printable, printable_lines, printable_values
from tests.mirroring.monitoring.page.page_reports import ServedPage, partition_of, report_of

#: Sets a terminal's title, clears its screen, and forges a line.
HOSTILE = "topic\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202eevil"
SAFE = r"topic\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202eevil"


def test_control_characters_become_escapes() -> None:
    assert printable(HOSTILE) == SAFE
    assert printable("a\nb") == r"a\nb"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"
    assert printable("Grüße, 日本 👩‍👩‍👧") == "Grüße, 日本 👩‍👩‍👧"


def test_messages_on_stderr_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE.replace("\r", ""))
    warn(HOSTILE.replace("\r", ""))
    expected = SAFE.replace(r"\r", "")
    assert capsys.readouterr().err == f"shoal: {expected}\nshoal: warning: {expected}\n"


def test_live_report_has_no_control_characters_of_a_cluster() -> None:
    out = io.StringIO()
    LiveReport(Console(file=out, force_terminal=False)).warning(HOSTILE.replace("\r", ""))
    assert out.getvalue() == f"shoal: warning: {SAFE.replace(chr(92) + 'r', '')}\n"


def test_table_cells_have_no_control_characters_and_stay_aligned() -> None:
    lines = table([("topic", "copy"), (f"{HOSTILE}\nforged", "x")]).split("\n")
    assert lines[1] == rf"{SAFE}\nforged  x"
    assert lines[0].index("copy") == lines[1].index("  x") + 2


def test_log_records_have_no_control_characters_in_message_and_traceback() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    log = logger("shoal.test-printable")
    log.addHandler(handler)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("broken: %s", HOSTILE)
    finally:
        log.removeHandler(handler)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().startswith(f"broken: {SAFE}\nTraceback")
    assert SAFE in out.getvalue().partition("Traceback")[2]


def test_values_for_json_are_printable_at_every_depth() -> None:
    value = {HOSTILE: [HOSTILE, (1, None, 2.5, True)], "a": {"b": HOSTILE}}
    assert printable_values(value) == {SAFE: [SAFE, [1, None, 2.5, True]], "a": {"b": SAFE}}


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(HOSTILE),
        AccessRefused("broker", HOSTILE),
        ProtocolError(HOSTILE),
        Disconnected(HOSTILE, HOSTILE),
        BrokerError(3, f"topic {HOSTILE}", HOSTILE),
        PartitionStopped(HOSTILE, 0, 5, HOSTILE),
    ],
)
def test_errors_have_no_control_characters_in_any_log_of_spark(error: ShoalError) -> None:
    assert SAFE in str(error)
    assert not set(HOSTILE) & set(str(error)) - set(SAFE)
    # Spark logs an error of a Python process as its traceback, after copying and pickling it.
    reported = "".join(traceback.format_exception(pickle.loads(pickle.dumps(error))))
    assert SAFE in reported
    assert not set(HOSTILE) & set(reported) - set(SAFE)


def test_names_and_reasons_on_page_and_report_have_no_control_characters(tmp_path: Path) -> None:
    metrics = Metrics()
    row = partition_of(HOSTILE, 0, end_offset=1500)
    row.update(stopped=[1000, HOSTILE], incidents=[["source-retention", HOSTILE, 200, True]])
    waiting = partition_of("waits", 0, end_offset=1500)
    waiting.update(waiting_for=HOSTILE)
    metrics.apply(report_of(row, waiting))
    about = About(HOSTILE, HOSTILE, HOSTILE, [HOSTILE])
    report = tmp_path / "run.html"
    with ServedPage(Address("127.0.0.1", 0), str(report), about, metrics) as shown:
        assert shown.url is not None
        with urllib.request.urlopen(f"{shown.url}state.json", timeout=20) as answer:
            live = answer.read().decode()
    _, _, embedded = report.read_text(encoding="utf-8").partition(
        '<script type="application/json" id="data">'
    )
    for text in (live, embedded.partition("</script>")[0]):
        # In JSON an escape's backslash is doubled, and a raw character would be an escape of JSON's.
        assert json.dumps(SAFE)[1:-1] in text
        assert json.dumps(HOSTILE)[1:-1] not in text
        assert "\\u001b" not in text
        assert "\\u202e" not in text.replace("\\\\u202e", "")


def test_labels_of_metrics_have_no_control_characters() -> None:
    metrics = Metrics()
    metrics.apply(report_of(partition_of(HOSTILE, 0, end_offset=1500)))
    text = exposition(metrics, list).decode()
    assert f'topic="{SAFE.replace(chr(92), chr(92) * 2)}"' in text
    assert not set(HOSTILE) & set(text) - set(SAFE) - {"\n"}
