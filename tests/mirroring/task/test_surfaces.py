"""A stopped partition names its option as the surface takes it on which the user gave the options."""

from __future__ import annotations

import re

import pytest

from shoal.mirroring.model.surface import Surface
from tests import batches
from tests.two_brokers import History, TwoBrokers


@pytest.mark.parametrize(
    ("surface", "option"),
    [
        (Surface.SHELL, "--continue-after foreign-records"),
        (Surface.PYTHON, "continue_after=['foreign-records']"),
        (Surface.SPARK, "option continueAfter=foreign-records"),
    ],
)
def test_stop_spells_the_option_by_surface(
    brokers: TwoBrokers, history: History, surface: Surface, option: str
) -> None:
    history.plain(2)
    brokers.run()
    brokers.destination.log("topic").store(memoryview(batches.batch(1, base_offset=2)))
    history.plain(1)
    (stopped,) = brokers.with_settings(surface=surface).run().stopped
    assert re.search(r"foreign.*2", stopped.reason)
    assert option in stopped.reason
