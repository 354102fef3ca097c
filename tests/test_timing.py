"""All times in one value: each says its unit, and tasks on other machines get them."""

from __future__ import annotations

import pickle
from dataclasses import fields

from shoal.mirroring.model.copy_options import CopySettings
from shoal.timing import Timing
from tests.world.clusters import config_of

_TIMES = [each.name for each in fields(Timing) if each.name != "clock"]


def test_each_time_ends_with_its_unit() -> None:
    assert [name for name in _TIMES if not name.endswith(("_s", "_ms", "_timeouts", "_lengths"))] == []


def test_settings_of_a_task_keep_their_times_on_their_way_to_an_executor() -> None:
    timing = Timing(stalled_s=0.25)
    settings = CopySettings(config_of("source"), config_of("destination"), "group", rules="", timing=timing)
    assert pickle.loads(pickle.dumps(settings)).timing == timing
