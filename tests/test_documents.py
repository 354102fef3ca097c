"""The documents name existing files, and versions that agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from rig.jars import KAFKA_VERSION, OLD_KAFKA_VERSION, OTHER_KAFKA_VERSIONS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "shoal"
BROKER = ROOT / "broker" / "src" / "shoal_broker"


def test_files_named_in_architecture_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+/[\w./-]*)`", page))
    assert len(named) > 30
    places = (PACKAGE, BROKER.parent, ROOT)
    assert [each for each in named if not any((place / each).exists() for place in places)] == []


def test_changelog_s_newest_version_is_that_of_package_and_agent() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    newest = re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d|unreleased)", headings[1])
    assert newest
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["version"] == newest[1]
    for pom in [ROOT / "agent" / "pom.xml", *(ROOT / "agent").glob("*/pom.xml")]:
        versions = re.findall(
            r"<artifactId>shoal-agent-parent</artifactId>\s*<version>(.*?)</version>",
            pom.read_text(encoding="utf-8"),
        )
        assert versions == [newest[1]], pom


def test_releases_that_compatibility_calls_tested_are_those_of_the_rig() -> None:
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^The tests run these releases of Apache Kafka: (.*)$", text, re.MULTILINE)
    run = [KAFKA_VERSION, *reversed(OTHER_KAFKA_VERSIONS), OLD_KAFKA_VERSION]
    assert re.findall(r"\d+\.\d+\.\d+", listed) == run
    rows = re.findall(r"^\| (Kafka.*\|) PySpark .*\| tested", text, re.MULTILINE)
    named = {version for row in rows for version in re.findall(r"\b\d\.\d\b", row)}
    assert named == {release.rpartition(".")[0] for release in run}
