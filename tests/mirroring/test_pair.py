"""What is committed, and what is read back."""

from __future__ import annotations

import pytest

from shoal.client.groups import Committed
from shoal.errors import ConfigError
from shoal.mirroring.pair import Identity, Pair

PAIR = Pair(
    source_offset=7,
    destination_offset=5,
    identity=Identity(producer_id=4000, producer_epoch=2, base=0),
    origin=(2, 0),
    last_batch=0xDEADBEEF,
    source_topic_id="1c7f0c3e-95f4-4b62-9e0e-1f4f3d1d6c55",
    destination_topic_id=None,
    destination_leader_epoch=3,
    rules="0123456789abcdef",
)


def test_a_pair_is_committed_as_text_that_stays_the_same() -> None:
    assert PAIR.to_committed() == Committed(
        7,
        'shoal1{"destination":5,"producer":[4000,2,0],"origin":[2,0],"last":3735928559,'
        '"topics":["1c7f0c3e-95f4-4b62-9e0e-1f4f3d1d6c55",null],"epoch":3,"rules":"0123456789abcdef"}',
    )


def test_a_pair_is_read_back_as_it_was() -> None:
    assert Pair.from_committed(PAIR.to_committed()) == PAIR


def test_metadata_stays_far_below_the_brokers_bound() -> None:
    assert len(PAIR.to_committed().metadata) < 512


@pytest.mark.parametrize("metadata", ["", "somebody else's", '{"destination":5}'])
def test_what_is_not_ours_is_no_pair(metadata: str) -> None:
    assert Pair.from_committed(Committed(7, metadata)) is None


@pytest.mark.parametrize("metadata", ["shoal2{}", "shoal1", "shoal1{}", 'shoal1{"destination":5', "shoal1[]"])
def test_what_is_ours_and_cannot_be_read_is_refused(metadata: str) -> None:
    with pytest.raises(ConfigError, match="another version of shoal"):
        Pair.from_committed(Committed(7, metadata))


def test_the_sequence_of_a_batch_is_where_it_lands_modulo_two_to_the_31() -> None:
    identity = Identity(1, 0)
    assert identity.sequence(5) == 5
    assert identity.sequence(2**31 - 1) == 2**31 - 1
    assert identity.sequence(2**31 + 3) == 3
    assert Identity(1, 1, base=10).sequence(12) == 2
