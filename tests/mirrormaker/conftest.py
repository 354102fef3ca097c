"""Two clusters for mirror makers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_broker import Broker
from tests.mirrormaker.makers import Makers
from tests.spark.without_jvm import without_jvm


@pytest.fixture
def makers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Makers]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with (
        without_jvm(monkeypatch),
        Broker(cluster_id="source") as source,
        Broker(cluster_id="destination") as destination,
    ):
        source.create_topic("orders", 3)
        yield Makers(tmp_path, source, destination)
