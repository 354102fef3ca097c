"""`rig.shoal` with programs of a few lines: what every test of a process relies on."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest

from rig import wait_until
from rig.shoal import Shoal, run_shoal, serve_broker, serve_gateway
from tests.hasty import hasty

#: Prints a line for people, an object, half an object without a line's end, and waits.
_TALKER = """
import sys, time
print("for people")
print('{"records": 1}')
print('{"records": 2}')
print('{"reco', end="", flush=True)
print("a warning", file=sys.stderr, flush=True)
time.sleep(600)
"""


def talker(log: Path | None = None) -> Shoal:
    return Shoal(program=("-c", _TALKER), log=log)


def test_wait_for_sees_the_last_object_and_those_of_one_moment() -> None:
    with talker() as running:
        running.wait_for_line("a warning")
        assert running.wait_for(lambda each: each["records"] == 2) == {"records": 2}
        assert running.objects() == [{"records": 1}, {"records": 2}]
        with pytest.raises(AssertionError, match=r"waited 0\.2 s .*a warning"):
            running.wait_for(lambda each: each["records"] == 1, timeout_s=0.2)  # it is not the last one


def test_wait_for_ends_with_the_process_and_quotes_its_errors() -> None:
    with Shoal(program=("-c", "import sys; sys.exit('broken')")) as running:
        with pytest.raises(AssertionError, match=r"ended with 1 .*broken"):
            running.wait_for(lambda _: True)
        with pytest.raises(AssertionError, match="ended with 1 "):
            running.wait_for_line("listening")


def test_output_of_a_killed_process_is_readable_after_the_block_and_its_log_remains(tmp_path: Path) -> None:
    with talker(tmp_path / "log") as running:
        running.wait_for_line("a warning")
    assert running.exit_code == -signal.SIGKILL
    assert running.wait() == {"records": 2}
    assert running.stderr == "a warning\n" == (tmp_path / "log.err").read_text()
    assert running.stdout == (tmp_path / "log.out").read_text()
    assert running.children() == []


def test_paused_process_is_stopped_within_the_block_alone() -> None:
    with talker() as running:
        running.wait_for_line("a warning")
        process = psutil.Process(running.process_id)
        with running.paused():
            wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
        wait_until(lambda: process.status() != psutil.STATUS_STOPPED, "the end of the stop")


def test_served_gateway_before_a_broker_ends_cleanly_by_sigterm() -> None:
    with serve_broker() as broker, serve_gateway(broker.address) as gateway:
        assert re.fullmatch(r"127\.0\.0\.1:\d+", gateway.address)
        assert gateway.address != broker.address
    assert (gateway.exit_code, broker.exit_code) == (0, 0)


def test_server_that_ends_within_the_block_is_a_failure() -> None:
    code = "import time; print('listening on a:1', flush=True); time.sleep(600)"

    def serve_and_end() -> None:
        with Shoal(program=("-c", code)).serving() as server:
            server.send_signal(signal.SIGTERM)
            wait_until(lambda: server.exit_code is not None, "its end")

    with pytest.raises(AssertionError, match="ended with -15"):
        serve_and_end()


def test_run_shoal_returns_output_and_exit_code_of_a_verb(tmp_path: Path) -> None:
    done = run_shoal("--version", state=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert run_shoal("miror", directory=tmp_path).returncode == 2


def test_shoal_with_other_times_runs_a_verb() -> None:
    with Shoal("verify", "--help", program=hasty(places_look_s=2.0)) as process:
        process.wait()
    assert process.exit_code == 0, process.stderr
