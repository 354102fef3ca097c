"""``scripts/audit``, with stand-ins for its two tools: findings that fail a build, and mere messages."""

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

#: As cargo-audit 0.22 prints them. It prints nothing if it could not fetch the advisories.
HAS = '{"vulnerabilities":{"found":true,"count":1,"list":[{"advisory":{"id":"RUSTSEC-2020-0071"}}]}}'
HAS_NONE = '{"vulnerabilities":{"found":false,"count":0,"list":[]},"warnings":{}}'

PACKAGES = "NOT LOOKED AT: known vulnerabilities of dependencies: "
CRATES = "NOT LOOKED AT: known vulnerabilities of crates: "


def stand_in(program: Path, asks: str, answer: str, exit_code: int) -> str:
    """Write a tool that answers about the known flaw, and looks at the rest with an exit code."""
    program.write_text(
        f"""#!/bin/sh
case "$*" in
{asks}) echo '{answer}' ;;
*) echo "looked at $*"; exit {exit_code} ;;
esac
"""
    )
    program.chmod(0o755)
    return str(program)


def audit(
    room: Path,
    *,
    packages: tuple[str, int] = (KNOWS, 0),
    crates: tuple[str, int] = (HAS, 0),
    required: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run the script; each service gives an answer about the known flaw, and an exit code for the rest."""
    tools = {
        "PIP_AUDIT": stand_in(room / "pip-audit", "*--requirement*", *packages),
        "CARGO_AUDIT": stand_in(room / "cargo-audit", "*--json*", *crates),
    }
    return subprocess.run(
        [ROOT / "scripts" / "audit"],
        cwd=ROOT,
        env={**os.environ, "AUDIT_REQUIRED": required, **tools},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("answer", ["", SKIPS, CLEAN])
def test_audit_without_answer_on_packages_reports_no_check(tmp_path: Path, answer: str) -> None:
    ended = audit(tmp_path, packages=(answer, 1))
    assert ended.returncode == 0
    assert "site-packages" not in ended.stdout
    assert ended.stderr.startswith(PACKAGES)
    assert CRATES not in ended.stderr


@pytest.mark.parametrize("answer", ["", HAS_NONE])
def test_audit_without_advisories_on_crates_reports_no_check(tmp_path: Path, answer: str) -> None:
    ended = audit(tmp_path, crates=(answer, 1))
    assert ended.returncode == 0
    assert "Cargo.lock" not in ended.stdout
    assert ended.stderr.startswith(CRATES)
    assert PACKAGES not in ended.stderr


@pytest.mark.parametrize("unanswered", [{"packages": (SKIPS, 0)}, {"crates": ("", 0)}])
@pytest.mark.parametrize(("required", "exit_code"), [("1", 1), ("0", 0)])
def test_audit_required_without_check_fails(
    tmp_path: Path, required: str, exit_code: int, unanswered: dict[str, tuple[str, int]]
) -> None:
    ended = audit(tmp_path, **unanswered, required=required)
    assert ended.returncode == exit_code
    assert ended.stderr.count("NOT LOOKED AT") == 1


def test_audit_required_with_both_checks_passes(tmp_path: Path) -> None:
    ended = audit(tmp_path, required="1")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(("packages", "crates"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_audit_with_flaw_in_package_or_crate_fails(tmp_path: Path, packages: int, crates: int) -> None:
    ended = audit(tmp_path, packages=(KNOWS, packages), crates=(HAS, crates))
    assert ended.returncode == max(packages, crates)
    looked_at_packages, looked_at_crates = ended.stdout.splitlines()
    assert "site-packages" in looked_at_packages
    assert "native/Cargo.lock" in looked_at_crates


def test_audit_without_cargo_audit_reports_no_check_of_crates(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *venv*) exit 1 ;; *) echo site-packages ;; esac\n')
    python.chmod(0o755)
    ended = subprocess.run(
        [ROOT / "scripts" / "audit"],
        cwd=tmp_path,
        env={**os.environ, "AUDIT_REQUIRED": "1", "PIP_AUDIT": stand_in(tmp_path / "a", "*--req*", KNOWS, 0)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stdout.startswith("looked at --path=site-packages")
    assert ended.stderr.startswith(f"{CRATES}cargo-audit ")
