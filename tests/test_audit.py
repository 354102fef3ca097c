"""``scripts/audit``, with a stand-in for pip-audit: findings that fail a build, and mere messages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: As pip-audit 2.10 prints them.
KNOWS = '{"dependencies": [{"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "CVE-2014-0012"}]}]}'
SKIPS = '{"dependencies": [{"name": "jinja2", "skip_reason": "Dependency not found"}], "fixes": []}'
CLEAN = '{"dependencies": [{"name": "jinja2", "version": "2.4.1", "vulns": []}], "fixes": []}'


def audit(room: Path, answer: str, exit_code: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script; the service gives an answer about the known flaw, and an exit code for the rest."""
    program = room / "pip-audit"
    program.write_text(
        f"""#!/bin/sh
case "$*" in
*--requirement*) echo '{answer}' ;;
*) echo "looked at $*"; exit {exit_code} ;;
esac
"""
    )
    program.chmod(0o755)
    return subprocess.run(
        [ROOT / "scripts" / "audit"],
        cwd=ROOT,
        env={**os.environ, "AUDIT_REQUIRED": "", "PIP_AUDIT": str(program), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("answer", ["", SKIPS, CLEAN])
def test_audit_without_answer_of_the_service_reports_no_check(tmp_path: Path, answer: str) -> None:
    ended = audit(tmp_path, answer, exit_code=1)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr.startswith("NOT LOOKED AT: known vulnerabilities of dependencies: ")


@pytest.mark.parametrize(("required", "exit_code"), [("1", 1), ("0", 0)])
def test_audit_required_without_check_fails(tmp_path: Path, required: str, exit_code: int) -> None:
    ended = audit(tmp_path, SKIPS, exit_code=0, AUDIT_REQUIRED=required)
    assert (ended.returncode, ended.stdout) == (exit_code, "")
    assert ended.stderr.startswith("NOT LOOKED AT: known vulnerabilities of dependencies: ")


def test_audit_required_with_check_passes(tmp_path: Path) -> None:
    assert audit(tmp_path, KNOWS, exit_code=0, AUDIT_REQUIRED="1").returncode == 0


@pytest.mark.parametrize("exit_code", [0, 1])
def test_audit_with_known_flaws_exits_like_pip_audit(tmp_path: Path, exit_code: int) -> None:
    ended = audit(tmp_path, KNOWS, exit_code)
    assert ended.returncode == exit_code
    assert "site-packages" in ended.stdout
