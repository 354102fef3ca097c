"""Options that shoal does not have, as an operator types them: what the command line answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.cli import main

CLUSTERS = ("--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "orders")


@pytest.mark.parametrize("option", ["--until", "--end", "--to-time", "--stop-at", "--end-time"])
def test_option_for_an_end_time_names_once(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mirror", *CLUSTERS, option, "2026-11-24T12:00:00Z"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(each in err for each in ("option", str(option)))
    assert re.search(r"--once.*present", err)
    assert "Did you mean" not in err


def test_end_time_in_a_file_names_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mirror.toml").write_text('until = "2026-11-24"\n')
    assert main(["mirror", *CLUSTERS, "--config", str(tmp_path / "mirror.toml")]) == 2
    assert re.search(r"--once.*present", capsys.readouterr().err)


def test_end_time_of_another_verb_has_no_advice_about_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["control", "FILE", "status", "--until", "noon"]) == 2
    assert "--once" not in capsys.readouterr().err
