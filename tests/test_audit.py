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

#: As cargo-audit 0.22 prints them. It prints nothing if it could not fetch the advisories.
HAS = '{"vulnerabilities":{"found":true,"count":1,"list":[{"advisory":{"id":"RUSTSEC-2020-0071"}}]}}'

PACKAGES = "NOT LOOKED AT: known vulnerabilities of dependencies: "


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


@pytest.mark.parametrize("unanswered", [{"packages": (SKIPS, 0)}, {"crates": ("", 0)}])
@pytest.mark.parametrize(("required", "exit_code"), [("1", 1), ("0", 0)])
def test_audit_required_without_check_fails(
    tmp_path: Path, required: str, exit_code: int, unanswered: dict[str, tuple[str, int]]
) -> None:
    ended = audit(tmp_path, **unanswered, required=required)
    assert ended.returncode == exit_code
    assert ended.stderr.count("NOT LOOKED AT") == 1


@pytest.mark.parametrize(("packages", "crates"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_audit_with_flaw_in_package_or_crate_fails(tmp_path: Path, packages: int, crates: int) -> None:
    ended = audit(tmp_path, packages=(KNOWS, packages), crates=(HAS, crates))
    assert ended.returncode == max(packages, crates)
    looked_at_packages, looked_at_crates = ended.stdout.splitlines()
    assert "site-packages" in looked_at_packages
    assert "native/Cargo.lock" in looked_at_crates
