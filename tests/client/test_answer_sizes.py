"""How large an answer may be, by its request and by the client's properties."""

from __future__ import annotations

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.client.config import ClientConfig
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize("api_key", [ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE])
def test_nothing_allows_a_large_answer_before_a_login(api_key: ApiKey) -> None:
    assert AnswerSizes(answer_bytes=64 * MIB).largest(api_key, 64 * KIB) == 128 * KIB


def test_an_answer_about_partitions_grows_with_its_request() -> None:
    sizes = AnswerSizes()
    assert sizes.largest(ApiKey.LIST_OFFSETS, 100) == 128 * KIB + 800
    assert sizes.largest(ApiKey.OFFSET_FETCH, 100, {"topics": [object()]}) == 128 * KIB + 100 * 2048
    assert sizes.largest(ApiKey.LIST_OFFSETS, 100 * MIB) == 16 * MIB


@pytest.mark.parametrize("fields", [{"topics": None}, {}])
def test_all_positions_of_a_group_may_be_many(fields: dict[str, object]) -> None:
    assert AnswerSizes().largest(ApiKey.OFFSET_FETCH, 40, fields) == 16 * MIB


def test_a_fetch_may_bring_what_it_asks_for_or_one_batch() -> None:
    sizes = AnswerSizes()
    assert sizes.largest(ApiKey.FETCH, 100, {"max_bytes": 16 * MIB}) == (100 + 4 + 16) * MIB
    assert sizes.largest(ApiKey.FETCH, 100, {"max_bytes": 400 * MIB}) == (400 + 100 + 16) * MIB
    assert AnswerSizes(batch_bytes=2 * MIB).largest(ApiKey.FETCH, 100, {"max_bytes": 4 * MIB}) == 21 * MIB


def config(**properties: str) -> ClientConfig:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    found, warnings = ClientConfig.from_properties("source", {"bootstrap.servers": "a:1", **named})
    assert warnings == []
    return found


def test_properties_set_both_bounds_and_reach_tasks() -> None:
    found = config(shoal_max_answer_bytes="33554432", shoal_max_batch_bytes="209715200")
    assert found.answer_sizes == AnswerSizes(answer_bytes=32 * MIB, batch_bytes=200 * MIB)
    assert ClientConfig.from_properties("source", found.to_properties())[0] == found
    assert config().answer_sizes == AnswerSizes()
    assert ClientConfig.from_properties("source", config().to_properties())[0] == config()


@pytest.mark.parametrize("value", ["0", "-1", "16m", ""])
def test_a_bound_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"shoal.max.answer.bytes={value} is no number of bytes from 1 to"):
        config(shoal_max_answer_bytes=value)
