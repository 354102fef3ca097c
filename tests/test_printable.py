"""Text from a hostile cluster reaches no terminal and no log with its control characters."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from shoal.cli.report import LiveReport, say, table, warn
from shoal.printable import logger, printable, printable_lines

#: Sets a terminal's title, clears its screen, and forges a line.
HOSTILE = "topic\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202eevil"
SAFE = r"topic\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202eevil"


def test_control_characters_become_escapes() -> None:
    assert printable(HOSTILE) == SAFE
    assert printable("a\nb") == r"a\nb"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"
    assert printable("Grüße, 日本 👩‍👩‍👧") == "Grüße, 日本 👩‍👩‍👧"


def test_sentences_on_stderr_have_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
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
