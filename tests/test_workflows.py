"""GitHub's workflows run the Makefile's targets, with the versions that the package announces."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))


def test_each_make_target_of_a_workflow_is_in_the_makefile() -> None:
    called = [
        target
        for file in WORKFLOWS.glob("*.yml")
        for line in re.findall(r"run: make (.*)", file.read_text(encoding="utf-8"))
        for target in line.split()
        if "/" not in target
    ]
    assert {"test", "test-clusters", "test-night", "audit"} <= set(called)
    assert set(called) <= makefile_targets()


def test_each_test_file_of_a_workflow_exists() -> None:
    text = (WORKFLOWS / "tests.yml").read_text(encoding="utf-8")
    paths = re.findall(r"tests: (tests/\S+)", text)
    assert len(paths) == 2
    assert [each for each in paths if not (ROOT / each).exists()] == []


def test_matrix_has_the_supported_versions_of_python() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    announced = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    (matrix,) = re.findall(r"python: \[(.*)\]", (WORKFLOWS / "tests.yml").read_text(encoding="utf-8"))
    assert re.findall(r'"(.*?)"', matrix) == announced
    assert project["requires-python"] == f">={announced[0]}"


def find_python(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "find-python"],
        env={**os.environ, "PYTHON": name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_find_python_returns_that_of_the_environment_variable() -> None:
    found = find_python(sys.executable)
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{sys.executable}\n", "")


def test_find_python_missing_from_the_environment_variable_is_named() -> None:
    found = find_python("python3.99")
    assert (found.returncode, found.stdout) == (1, "")
    assert "python3.99" in found.stderr


def test_each_action_is_named_by_its_commit_with_the_tag_in_a_comment() -> None:
    used = [
        each
        for file in WORKFLOWS.glob("*.yml")
        for each in re.findall(r"uses: (\S+)@(.*)", file.read_text(encoding="utf-8"))
    ]
    assert len(used) > 10
    by_tag = {name for name, version in used if not re.fullmatch(r"[0-9a-f]{40} # v[\d.]+", version)}
    assert by_tag == set()
