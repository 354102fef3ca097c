"""The table of differences, and which server a test applies to."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conformance.differences import DIFFERENCES, difference
from tests.conformance.servers import every_server


def test_each_difference_names_existing_tests() -> None:
    named = {test.partition("[")[0] for row in DIFFERENCES for test in row.tests}
    for file, _, name in (test.partition("::") for test in named):
        source = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), (file, name)


def test_each_difference_has_a_server_and_is_not_hidden_by_another() -> None:
    for row in DIFFERENCES:
        names = [each for each in every_server() if any(fnmatchcase(each.name, name) for name in row.servers)]
        assert names
        for server in names:
            for test in row.tests:
                name, _, parameters = test.partition("[")
                node = f"tests/conformance/{name}[{server.name}" + (f"-{parameters}" if parameters else "]")
                assert difference(node, server) is row
