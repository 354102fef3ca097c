"""Each conformance test fails on a server that breaks a rule: none of them passes whatever it answers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conformance.broken import BROKEN

HERE = Path(__file__).parent

#: A test that waits for what a broken server never sends has failed.
_PATIENCE_S = 10


def passed_on(server: str, marks: str, tests: Iterable[str] = (str(HERE),)) -> set[str]:
    """Run some tests with these marks on one server, and return those that passed."""
    command = [sys.executable, "-m", "pytest", *tests, f"--ignore={__file__}", "--server", server]
    options = ["-m", marks, "-q", "-rp", "--tb=no", f"--timeout={_PATIENCE_S}"]
    # Failures are wanted here: nothing remembers them, and Hypothesis proposes no patch for its own.
    options += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    ended = subprocess.run(
        [*command, *options], cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    passed = re.findall(r"^PASSED (.*)$", ended.stdout, re.MULTILINE)
    return {each for each in passed if f"[{server.partition('/')[0]}" in each}


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "case"),
    [
        (
            "lists-open-transactions",
            "test_transactions.py::test_time_of_an_open_transaction_has_no_offset_for_readers_of_committed_"
            "records",
        ),
        (
            "lists-one-aborted-transaction",
            "test_transactions.py::test_all_of_several_aborted_transactions_are_listed",
        ),
    ],
)
def test_rule_that_few_requests_meet_has_its_case(rule: str, case: str) -> None:
    cases = [f"{HERE}/{case}"]
    assert passed_on("embedded", "", cases) - passed_on(f"embedded/{rule}", "", cases)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kind", "marks"), [("embedded", ""), ("gateway", "one_batch")])
def test_each_test_fails_on_a_server_that_breaks_its_rule(kind: str, marks: str) -> None:
    left = passed_on(kind, marks)
    assert left
    for name in BROKEN:
        if left:  # those alone: a test that nothing ends takes its whole patience
            left = passed_on(f"{kind}/{name}", marks, left)
    assert left == set()
