"""A budget of memory goes first to the client that holds the least."""

from __future__ import annotations

import socket
import threading

from shoal.gateway.memory_budget import MemoryBudget
from tests.two_brokers import wait_until


def test_client_with_the_least_memory_is_admitted_first() -> None:
    ends = [socket.create_server(("127.0.0.1", 0))]
    budget = MemoryBudget(3, lambda sentence: None, "")
    order: list[str] = []

    def connected(host: str) -> socket.socket:
        """The server's end of a connection from this address."""
        ends.append(socket.create_connection(ends[0].getsockname(), source_address=(host, 0)))
        ends.append(ends[0].accept()[0])
        return ends[-1]

    def take(sock: socket.socket, host: str) -> None:
        with budget.share(sock, 2):
            order.append(host)

    with budget.share(connected("127.0.0.1"), 1):
        threads = []
        with budget.share(connected("127.0.0.2"), 2):
            for number, host in enumerate(("127.0.0.1", "127.0.0.1", "127.0.0.3"), 1):
                threads.append(threading.Thread(target=take, args=(connected(host), host)))
                threads[-1].start()
                wait_until(lambda number=number: budget.waiting == number)  # type: ignore[misc]
        for thread in threads:
            thread.join()
    assert order == ["127.0.0.3", "127.0.0.1", "127.0.0.1"]
    for each in ends:
        each.close()


def test_request_larger_than_the_budget_is_admitted_alone() -> None:
    budget = MemoryBudget(1, lambda sentence: None, "")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        budget.share(client, 5),
    ):
        assert budget.held == 1
