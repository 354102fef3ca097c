"""The documents name existing files, and versions that agree."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def file_map() -> tuple[set[Path], dict[Path, str]]:
    """Return the paths that the file map names, whether they exist or not, and each folder's own line."""
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## File map\n")
    _, lines, _ = section.split("```", 2)
    above: list[tuple[int, Path]] = [(-1, ROOT)]
    named: set[Path] = set()
    folders: dict[Path, str] = {}
    for line in lines.splitlines():
        names = re.findall(r"(?<![\w`./-])[\w/]+(?:\.py|/)(?=[\s,:);]|$)", line)
        depth = len(line) - len(line.lstrip())
        while names and above[-1][0] >= depth:
            above.pop()
        folder = above[-1][1]
        if names and names[0].endswith("/") and line.lstrip().startswith(names[0]):
            folder = folder / names[0]
            above.append((depth, folder))
            folders[folder] = line
            named.add(folder)
            names = names[1:]
        # A line may also name a file beside its folder.
        named |= {each if (each := folder / name).exists() else folder.parent / name for name in names}
    return named, folders


def test_files_of_the_file_map_exist() -> None:
    named, folders = file_map()
    assert len(folders) > 40
    assert [str(each.relative_to(ROOT)) for each in named if not each.exists()] == []


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the modules of both packages, each with the name that CONTRIBUTING gives it."""
    for package, place in ((PACKAGE, PACKAGE), (BROKER, BROKER.parent)):
        yield from ((str(module.relative_to(place)), module) for module in package.rglob("*.py"))


def test_every_module_of_both_packages_is_in_the_file_map() -> None:
    named, folders = file_map()
    missing = [
        name
        for name, module in modules()
        if module.name not in ("__init__.py", "__main__.py")
        and module not in named
        and "one file for each API" not in (line := folders.get(module.parent, ""))
        and module.stem not in re.findall(r"\w+", line)
    ]
    assert missing == []


def test_module_over_450_lines_has_a_reason() -> None:
    _, _, section = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n### Modules over 450 lines\n")
    )
    listed = set(re.findall(r"^\| `([\w/.]+)` \|", section.partition("\n## ")[0], re.MULTILINE))
    assert listed - {name for name, _ in modules()} == set()
    large = {name for name, module in modules() if len(module.read_text(encoding="utf-8").splitlines()) > 450}
    assert large - listed == set()


def test_size_in_contributing_is_that_of_src_and_tests() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    stated = re.search(r"^`src` has ([\d,]+) lines and `tests` ([\d,]+)\.$", text, re.MULTILINE)
    assert stated
    for number, folder in zip(stated.groups(), ("src", "tests"), strict=True):
        lines = sum(
            len(each.read_text(encoding="utf-8").splitlines()) for each in (ROOT / folder).rglob("*.py")
        )
        assert lines == pytest.approx(int(number.replace(",", "")), rel=0.03), folder


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
