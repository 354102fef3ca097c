"""The session of a task: its reports, and the times that it keeps to."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.mirroring.task.session import TaskSession
from shoal.native import NATIVE
from shoal.timing import DEFAULT_TIMING, Timing
from tests.two_brokers import Watched


@pytest.mark.parametrize(("sign_of_life_s", "reports"), [(3600.0, 1), (0.0, 2)])
def test_show_life_reports_only_after_a_while_without_a_report(sign_of_life_s: float, reports: int) -> None:
    control = Watched()
    task = TaskSession(control, Timing(sign_of_life_s=sign_of_life_s))
    task.report()
    task.show_life()
    assert len(control.reports) == reports


def test_report_says_whether_the_inner_loops_are_native() -> None:
    control = Watched()
    TaskSession(control, DEFAULT_TIMING).report()
    assert control.reports[-1]["process"]["is_native"] == (NATIVE is not None)


def test_may_produce_unless_the_lease_has_lapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Watched()
    assert TaskSession(control, DEFAULT_TIMING).may_produce

    def lapsed() -> None:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the lease")

    monkeypatch.setattr(control, "check_lease", lapsed)
    assert not TaskSession(control, DEFAULT_TIMING).may_produce
