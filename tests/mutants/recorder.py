"""
A pytest plugin that records the start, the end and the failure of each test, and ends pytest at a failure.

Each event is a line of JSON in the plan's file of events. The plugin writes it at once, so a run that hangs
or crashes still names its test.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from .plan import PACKAGE_NAMES, PLAN, Plan

_plan = Plan(**json.loads(Path(os.environ[PLAN]).read_text(encoding="utf-8")))
_seconds: dict[str, float] = {}
_failed: set[str] = set()


def _write(event: str, **more: Any) -> None:
    with Path(_plan.events).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event, **more}) + "\n")


# Before pytest imports a conftest, which may fail in a mutated module.
_packages = [importlib.util.find_spec(name) for name in PACKAGE_NAMES]
_write("package", paths=[each.origin if each else None for each in _packages])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _plan.deadlines is None:
        return
    there = {item.nodeid: item for item in items}
    items[:] = [there[test] for test in _plan.deadlines if test in there]
    for item in items:
        # A thread ends the process, since a mutant may hang where no signal is handled.
        deadline = pytest.mark.timeout(_plan.deadlines[item.nodeid], method="thread")
        item.add_marker(deadline, append=False)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("start", test=nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    test = report.nodeid
    _seconds[test] = _seconds.get(test, 0.0) + report.duration
    if report.failed:
        _failed.add(test)
        _write("failed", test=test, message=report.longreprtext.strip().rpartition("\n")[2][:300])
        if _plan.deadlines is not None:
            os._exit(1)  # what the mutant has started may never end


def pytest_runtest_logfinish(nodeid: str) -> None:
    if nodeid not in _failed:
        _write("passed", test=nodeid, seconds=_seconds.get(nodeid, 0.0))
