"""Ctrl-C while a cluster that accepts connections answers nothing."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.shoal import Shoal


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def interrupted(silent: socket.socket, *arguments: str) -> tuple[int, str, str]:
    """Run a verb, and press Ctrl-C when it connects. Return exit code, stdout and stderr."""
    with Shoal(*arguments) as process, silent.accept()[0]:
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert process.exit_code is not None
    return process.exit_code, process.stdout, process.stderr


def address(silent: socket.socket) -> str:
    return f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.mark.parametrize(("verb", "exit_code"), [(["mirror", "--dry-run"], 1), (["verify"], 3)])
def test_interrupted_read_only_verb_reports_the_interruption(
    silent: socket.socket, verb: list[str], exit_code: int
) -> None:
    clusters = ["--from", address(silent), "--to", address(silent), "--topics", "orders"]
    code, out, err = interrupted(silent, *verb, *clusters, "--json")
    assert code == exit_code
    assert err.splitlines()[-1].endswith("shoal: interrupted")
    error = {"type": "error", "error": "interrupted", "exit_code": exit_code}
    assert json.loads(out.splitlines()[-1]) == error


def test_mirror_maker_interrupted_before_its_start_ends_at_once(
    silent: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "consumer").write_text(f"bootstrap.servers={address(silent)}\ngroup.id=group\n")
    (tmp_path / "producer").write_text(f"bootstrap.servers={address(silent)}\n")
    files = ["--consumer.config", str(tmp_path / "consumer"), "--producer.config", str(tmp_path / "producer")]
    code, out, _ = interrupted(silent, "mirror-maker", *files, "--include", "orders")
    assert code == 0
    assert "SIGINT" in out
