"""The documents name existing files, and versions that agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "shoal"


def test_files_named_in_architecture_and_decisions_exist() -> None:
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "decisions").glob("*.md")]
    named = {
        path
        for page in pages
        for path in re.findall(r"`([\w./-]+/[\w./-]*)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    gone = [each for each in named if not (PACKAGE / each).exists() and not (ROOT / each).exists()]
    assert gone == []


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


def test_files_of_the_file_map_exist() -> None:
    _, _, section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## File map\n")
    _, lines, _ = section.split("```", 2)
    above: list[tuple[int, Path]] = [(-1, ROOT)]
    gone = []
    for line in lines.splitlines():
        names = re.findall(r"(?<![\w`./-])[\w/]+(?:\.py|/)(?=[\s,:);]|$)", line)
        if not names:
            continue
        depth = len(line) - len(line.lstrip())
        while above[-1][0] >= depth:
            above.pop()
        folder = above[-1][1]
        if names[0].endswith("/") and line.lstrip().startswith(names[0]):
            folder = folder / names[0]
            above.append((depth, folder))
            names = names[1:]
            gone += [str(folder)] if not folder.is_dir() else []
        gone += [
            f"{folder.relative_to(ROOT)}/{name}"
            for name in names
            if not (folder / name).exists() and not (folder.parent / name).exists()
        ]
    assert above[-1][1] != ROOT
    assert gone == []


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
