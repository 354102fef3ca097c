"""Producer ids of a transactional id, without the wire, which would take 32,766 requests."""

from __future__ import annotations

from shoal_broker.coordination.groups import Groups
from shoal_broker.coordination.transactions import Transactions
from shoal_broker.topics import Topics


def test_init_after_the_last_epoch_returns_another_producer_id() -> None:
    transactions = Transactions(Topics(), Groups())
    first, epoch = transactions.init("id", 1000, -1, -1)
    while epoch < 32_766:
        found, epoch = transactions.init("id", 1000, -1, -1)
        assert found == first
    second, epoch = transactions.init("id", 1000, -1, -1)
    assert (second != first, epoch) == (True, 0)
