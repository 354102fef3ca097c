"""Hostile clients against ``shoal gateway``, in a separate process before an embedded broker.

In steps. Each step sends some thousand requests, while a crowd occupies connections and one or two bombs
arrive. An honest client is served all the time. After each step, these promises are checked:

- the process runs, and printed no traceback;
- no request that requires a response was left without one;
- the honest client was served each time, within :data:`SERVED_S`;
- threads and sockets are back to their numbers before the first step, within :data:`BACK_S`;
- the server never has more threads or sockets than its limit of connections allows;
- if a gateway requires a login, it serves no client without one, and disconnects each of them;
- the process never needed more memory than its options allow.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rig.process import peak_rss_of
from rig.shoal import Shoal, serve_broker, serve_gateway
from rig.wait import TimedOut, wait_until
from shoal.client.config import ClientConfig
from shoal.gateway.settings import GatewaySettings
from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.held import Held, Watch, held
from tests.login_front import locked_cluster

from .attackers import PASSWORD, PROBED_TOPIC, USER, End, LogIn, attack, crowd, honest_client, log_in
from .bombs import BOMBS, bomb
from .inputs import TOPICS, Input, draw_input
from .result import Result

__all__ = ["BACK_S", "SERVED_S", "SERVERS", "Target", "attack_server"]

#: Promises; the machine may be busy with other programs.
SERVED_S = 30.0
BACK_S = 30.0

#: The ``--max-bytes-in-flight`` of a server.
_BYTES_IN_FLIGHT = 64 * 1024 * 1024

#: Of a connection: 64 KiB in each direction, as much for a message that is decoded, and its thread.
_BYTES_OF_EACH = 512 * 1024

#: The memory of a conversion, by the batch's decompressed size, and of a decoded message, by its size. Each
#: core converts one, and one large message is decoded at a time.
_TIMES_A_BATCH, _TIMES_A_MESSAGE = 3, 20

_CONNECTIONS = 32
#: Clients without a login at a time, fewer than a gateway admits.
_STRANGERS = 24
_BOMBS_IN_A_STEP = 2
#: Behind the numbers of all inputs of a run.
_OF_STRANGERS = 1 << 40
#: APIs that a server may answer before the login.
_BEFORE_LOGIN = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
_FOREIGN = ("Traceback (most recent call last)", "Exception in thread", "a request failed", "unexpected ")


@dataclass(frozen=True)
class _Limits:
    """
    The limits of a server.

    Attributes:
        connections: Its ``--max-connections``: more than the campaign has at a time. Attackers count twice,
            as their last connection may still have to end.
        sockets_of_each: The sockets of one connection: to the client, and to the broker of its listener. A
            gateway with a login of its own may open one more to each broker, of which there is one.

    """

    connections: int
    sockets_of_each: int


#: The servers to attack. Before the broker of the last one are listeners that ask for a login.
SERVERS = {"gateway": _Limits(500, 3), "gateway-pass-through": _Limits(160, 2)}


@dataclass
class Target:
    """
    A server under attack.

    Attributes:
        process: The server to attack.
        broker: The broker behind it.
        log_in: The login of its clients, if it requires one.

    """

    name: str
    process: Shoal
    broker: Shoal
    log_in: LogIn | None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.process.address.rsplit(":", 1)
        return host, int(port)

    def held(self) -> list[Held]:
        return [held(each.process_id) for each in (self.process, self.broker)]

    def most(self, at_rest: Held) -> Held:
        """Return the most that it may hold, from its limit and from what it holds without clients.

        A connection has one thread. If it took the place of another one, the thread of that one has closed
        its socket, and may need a moment to exit. At rest all sockets are listeners, and each of them may
        have one more connection that it is about to admit or to close.
        """
        limits = SERVERS[self.name]
        return Held(
            at_rest.threads + 2 * limits.connections,
            2 * at_rest.sockets + limits.connections * limits.sockets_of_each,
        )

    def most_bytes(self, at_rest: int) -> int:
        """Return the most memory that it may need: by its options, above what it needs without clients."""
        limits = GatewaySettings("", 0, ClientConfig("upstream", ()), bytes_in_flight=_BYTES_IN_FLIGHT)
        of_connections = SERVERS[self.name].connections * _BYTES_OF_EACH
        converted = (os.cpu_count() or 1) * _TIMES_A_BATCH * limits.largest_batch_bytes
        decoded = _TIMES_A_MESSAGE * limits.largest_produced_bytes
        return at_rest + of_connections + limits.bytes_in_flight + converted + decoded

    @classmethod
    @contextlib.contextmanager
    def started(cls, name: str) -> Iterator[Target]:
        """Start a server, and require a clean end."""
        options = ["--max-connections", str(SERVERS[name].connections)]
        options += ["--max-bytes-in-flight", str(_BYTES_IN_FLIGHT)]
        has_login = name == "gateway-pass-through"
        with ExitStack() as stack:
            broker = stack.enter_context(serve_broker())
            address = broker.address
            if has_login:
                address = stack.enter_context(locked_cluster(address, {USER: PASSWORD})).bootstrap
                room = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-hostile-")))
                config = room / "upstream.properties"
                config.write_text("security.protocol=SASL_PLAINTEXT\n")
                options += ["--upstream-config", str(config), "--sasl-pass-through", "--broker-ids", "1"]
            gateway = stack.enter_context(serve_gateway(address, *options))
            yield cls(name, gateway, broker, log_in if has_login else None)


def attack_server(
    target: Target,
    seed: int,
    requests: int,
    *,
    first: int = 0,
    step_requests: int = 10_000,
    bombs: Sequence[str] = tuple(BOMBS),
) -> Iterator[Result]:
    """Attack in steps; yield the result so far after each, and end at the first broken promise."""
    result = Result(target.name)
    _begin_anew(target)
    at_rest = target.held()
    most_bytes = target.most_bytes(peak_rss_of(target.process.process_id))
    names = itertools.cycle(bombs)
    for start in range(first, first + requests, step_requests):
        numbers = range(start, min(start + step_requests, first + requests))
        _begin_anew(target)
        with (
            honest_client(target.process.address, target.log_in, result.problems) as served,
            Watch(target.process.process_id) as watch,
            crowd(target.address, random.Random(f"crowd:{seed}:{start}")),
        ):
            if target.log_in is not None:
                _invite_strangers(target, seed + start, len(numbers) // 4, result)
            tally = attack(target.address, _inputs(seed, numbers, names), _CONNECTIONS, target.log_in)
        result.counts.update({end.value: count for end, count in tally.ends.items()})
        result.counts["requests"] += tally.ends.total()
        result.counts["times served"] += len(served)
        result.problems += [f"no answer: {each}" for each in tally.hung]
        result.see("seconds of the honest client", max(served, default=0))
        if result.highest["seconds of the honest client"] > SERVED_S:
            result.problems.append("an honest client was served too late")
        _check_most(watch.most, target.most(at_rest[0]), result)
        _check(target, at_rest, most_bytes, result)
        yield result
        if result.problems:
            return


def _inputs(seed: int, numbers: range, names: Iterator[str]) -> Iterator[Input]:
    """Insert bombs into a step's inputs, each kind in its turn."""
    every = max(1, len(numbers) // _BOMBS_IN_A_STEP)
    for at, number in enumerate(numbers):
        yield bomb(next(names), number) if at % every == every // 2 else draw_input(seed, number)


def _invite_strangers(target: Target, seed: int, count: int, result: Result) -> None:
    """Let clients without a login send requests: the server must disconnect each, and answer none."""
    drawn = (draw_input(seed, number) for number in itertools.count(_OF_STRANGERS))
    asked = itertools.islice((each for each in drawn if each.api not in _BEFORE_LOGIN), count)
    ends = attack(target.address, asked, _STRANGERS, may_wait=()).ends
    result.counts["strangers"] += ends.total()
    if ends.keys() != {End.HUNG_UP}:
        result.problems.append(f"clients without a login were not disconnected: {ends}")


def _check_most(most: Held, allowed: Held, result: Result) -> None:
    for what, now, limit in zip(Held._fields, most, allowed, strict=True):
        result.see(what, now)
        if now > limit:
            result.problems.append(f"it had {now} {what}: more than {limit}")


def _check(target: Target, at_rest: list[Held], most_bytes: int, result: Result) -> None:
    result.see("MB", peak_rss_of(target.process.process_id) / 1e6)
    if result.highest["MB"] > most_bytes / 1e6:
        result.problems.append(f"it needed more than {most_bytes / 1e6:.0f} MB")
    for process in (target.process, target.broker):
        if process.exit_code is not None:
            result.problems.append("a process ended")
            return
        printed = process.stdout + process.stderr
        for foreign in _FOREIGN:
            if (at := printed.find(foreign)) >= 0:
                result.problems.append(f"it printed {printed[max(0, at - 500) : at + 3000]!r}")

    def is_back() -> bool:
        return not any(now.exceeds(before) for now, before in zip(target.held(), at_rest, strict=True))

    try:
        wait_until(is_back, "threads and sockets to end", BACK_S, 0.05)
    except TimedOut:
        result.problems.append(f"threads and sockets of gateway and broker: {target.held()} after {at_rest}")


def _begin_anew(target: Target) -> None:
    """Delete the topics that requests write to, and create them again, so that logs stay short."""
    with Wire(target.broker.address) as wire:
        wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=[*TOPICS, PROBED_TOPIC], timeout_ms=10_000)
        for name in (*TOPICS, PROBED_TOPIC):
            wire.create_topic(name, 2)
