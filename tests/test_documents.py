"""The documents name existing files, and versions that agree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from rig.jars import KAFKA_VERSION, OLD_KAFKA_VERSION, OTHER_KAFKA_VERSIONS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "shoal"
BROKER = ROOT / "broker" / "src" / "shoal_broker"


def test_files_named_in_architecture_and_decisions_exist() -> None:
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "decisions").glob("*.md")]
    named = {
        path
        for page in pages
        for path in re.findall(r"`([\w./-]+/[\w./-]*)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    places = (PACKAGE, BROKER.parent, ROOT)
    assert [each for each in named if not any((place / each).exists() for place in places)] == []


def definitions(path: Path) -> Iterator[str]:
    """Yield the names of a module's functions, classes and methods, the last two also as Class.method."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef():
                yield node.name
                yield from (
                    f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)
                )
            case ast.FunctionDef():
                yield node.name


def test_calls_of_the_journey_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, journey = text.partition("\n## The journey of one batch\n")
    _, calls, _ = journey.split("```", 2)
    path, checked = PACKAGE, 0
    modules: dict[str, Path] = {}
    for line in calls.strip().splitlines():
        names, _, where = line.strip().partition("  ")
        owner = names.partition(".")[0]
        if found := re.search(r"[\w/]+\.py", where):
            modules.setdefault(owner, PACKAGE / found[0])
        path = modules.get(owner, path)
        defined = set(definitions(path))
        for name in names.split(", "):
            assert name in defined, (name, path)
            checked += 1
    assert checked > 15


def test_decisions_are_listed_and_have_three_parts() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(each.name for each in folder.glob("[0-9]*.md"))
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in listed:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {name[:4]}: ")
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
        assert f"- decisions/{name}\n" in site


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
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^The tests run these releases of Apache Kafka: (.*)$", text, re.MULTILINE)
    run = [KAFKA_VERSION, *reversed(OTHER_KAFKA_VERSIONS), OLD_KAFKA_VERSION]
    assert re.findall(r"\d+\.\d+\.\d+", listed) == run
    rows = re.findall(r"^\| (Kafka.*\|) PySpark .*\| tested", text, re.MULTILINE)
    named = {version for row in rows for version in re.findall(r"\b\d\.\d\b", row)}
    assert named == {release.rpartition(".")[0] for release in run}
