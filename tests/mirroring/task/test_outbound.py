"""A task joins batches into larger ones: it copies the same records at once, and recognizes them later."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.records import Codec
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched
from tests.world.history import History

#: Larger than all batches of a test here.
ALL = Rebatch(100_000)


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(rebatch=ALL)


def counts(brokers: TwoBrokers) -> list[int]:
    """Return the number of records of each batch at the destination."""
    return [each.header.records_count for each in batches_of(brokers.destination.log("topic"))]


def run(brokers: TwoBrokers) -> dict[str, int]:
    """Copy all; return the decisions."""
    control = Watched()
    assert brokers.run(control=control).complete
    return control.decisions


# Batches to join


def test_joined_batch_is_complete_at_the_wanted_size(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[1] * 50)
    size = batches_of(history.log)[0].header.size
    run(brokers.with_settings(rebatch=Rebatch(10 * size)))
    brokers.assert_exact(history)
    assert max(counts(brokers)) <= 10
    assert len(counts(brokers)) <= 6


# Options


@pytest.mark.parametrize(
    ("text", "rebatch"),
    [
        ("64k", Rebatch(65_536)),
        ("1m:zstd", Rebatch(1_048_576, Codec.ZSTD)),
        ("122:none", Rebatch(122, Codec.NONE)),
        ("500:LZ4", Rebatch(500, Codec.LZ4)),
    ],
)
def test_rebatch_option_yields_bytes_and_codec(text: str, rebatch: Rebatch) -> None:
    assert Rebatch.parse("rebatch", text) == rebatch
    assert Rebatch.parse("rebatch", str(rebatch)) == rebatch


@pytest.mark.parametrize("text", ["", "x", "64k:", "64k:brotli", "121", "2m", ":zstd", "64k:zstd:9"])
def test_invalid_rebatch_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rebatch"):
        Rebatch.parse("rebatch", text)
