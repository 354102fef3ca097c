"""A client of the gateway needs no login, so it gets no credentials of the upstream user."""

from __future__ import annotations

import pytest

from shoal.gateway.versions import served_versions

#: The APIs that Kafka 4.1 announces to clients, and more.
ALL_APIS = dict.fromkeys(range(128), (0, 20))

CREDENTIALS = {
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
}


@pytest.mark.parametrize("api_key", CREDENTIALS, ids=CREDENTIALS.values())
def test_credential_apis_are_not_served(api_key: int) -> None:
    assert api_key not in served_versions(ALL_APIS)


def test_other_admin_apis_are_served() -> None:
    assert {29, 30, 31, 32, 48, 49} <= served_versions(ALL_APIS).keys()
