"""Hostile clients against ``shoal gateway``, in a separate process before an embedded broker.

In steps. Each step sends some thousand requests, while a crowd occupies connections and one or two bombs
arrive. An honest client is served all the time. After each step, these promises are checked:

- the process runs, and printed no traceback;
- no request that requires a response was left without one, by a clock that stands still while these
  processes wait for a CPU;
- the honest client was served each time, within :data:`SERVED_S`;
- threads and sockets are back to their numbers before the first step, within :data:`BACK_S`;
- the server never has more threads or sockets than its limit of connections allows;
- if a gateway requires a login, it serves no client without one, and disconnects each of them;
- the process never needed more memory than :data:`MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rig.process import peak_rss_of
from rig.shoal import Shoal, serve_broker, serve_gateway
from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.held import Held, Watch, held
from tests.login_front import locked_cluster

from .attackers import End, LogIn, Tally, attack
from .bombs import BOMBS, bomb
from .crowd import Crowd
from .fair_clock import FairClock
from .inputs import TOPICS, Input, draw_input
from .probe import PROBED_TOPIC, Probe
from .strangers import PASSWORD, USER, Stranger, flood, log_in, visit

__all__ = ["MOST_BYTES", "SERVED_S", "SERVERS", "ClientResult", "Target", "attack_server"]

_MEGABYTE = 1 << 20

#: Promises; the machine may be busy with other programs.
SERVED_S = 30.0
BACK_S = 30.0
MOST_BYTES = 1024 * _MEGABYTE

#: The servers to attack. Before the broker of the last one are listeners that ask for a login.
SERVERS = ("gateway", "gateway-pass-through")
_WITH_LOGIN = SERVERS[1:]

_CONNECTIONS = 32
#: The limit that each server gets. Those that require a login get less than a flood, and more than the rest
#: of the campaign has at a time; the others get more than the campaign has.
_MOST_CONNECTIONS = {"gateway": 500, "gateway-pass-through": 100}
#: The sockets of one connection: to the client, and from a gateway to the broker of its listener. A gateway
#: with a login of its own may open one more to each broker, of which there is one.
_SOCKETS_OF_EACH = {"gateway": 3, "gateway-pass-through": 2}
_FLOOD = 500
_BOMBS_IN_A_STEP = 2
_FOREIGN = ("Traceback (most recent call last)", "Exception in thread", "a request failed", "unexpected ")


@dataclass
class Target:
    """A server under attack.

    Attributes:
        name: One of :data:`SERVERS`.
        process: The server to attack.
        behind: The servers behind it; the broker comes last.
        most_connections: Its limit.
    """

    name: str
    process: Shoal
    behind: tuple[Shoal, ...] = ()
    most_connections: int = field(init=False)

    def __post_init__(self) -> None:
        self.most_connections = _MOST_CONNECTIONS[self.name]

    def most(self, at_rest: Held) -> Held:
        """Return the most that it may hold, from its limit and from what it holds without clients.

        A connection has one thread. If it took the place of another one, the thread of that one has closed
        its socket, and may need a moment to exit. At rest all sockets are listeners, and each of them may
        have one more connection that it is about to admit or to close.
        """
        return Held(
            at_rest.threads + 2 * self.most_connections,
            2 * at_rest.sockets + self.most_connections * _SOCKETS_OF_EACH[self.name],
        )

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.process.address.rsplit(":", 1)
        return host, int(port)

    @property
    def processes(self) -> list[Shoal]:
        return [self.process, *self.behind]

    @property
    def log_in(self) -> LogIn | None:
        """The login of its clients, if it requires one."""
        return log_in if self.name in _WITH_LOGIN else None

    @classmethod
    @contextlib.contextmanager
    def started(cls, name: str) -> Iterator[Target]:
        """Start a server, and require a clean end."""
        with ExitStack() as stack:
            room = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-hostile-")))
            limits = ("--max-connections", str(_MOST_CONNECTIONS[name]))
            broker = stack.enter_context(serve_broker())
            address = broker.address
            options: tuple[str, ...] = limits
            if name in _WITH_LOGIN:
                locked = stack.enter_context(locked_cluster(address, {USER: PASSWORD}))
                config = room / "upstream.properties"
                config.write_text("security.protocol=SASL_PLAINTEXT\n")
                passing = ("--upstream-config", str(config), "--sasl-pass-through", "--broker-ids", "1")
                address, options = locked.bootstrap, (*limits, *passing)
            yield cls(name, stack.enter_context(serve_gateway(address, *options)), (broker,))


@dataclass
class ClientResult:
    """Results of a campaign against one server.

    Attributes:
        strangers: Number of clients without a login, by kind.
        without_cpu_s: Time for which the processes waited for a CPU of the machine.
        problems: The broken promises, each with its step.
    """

    target: str
    steps: int = 0
    ends: Counter[End] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    strangers: Counter[Stranger] = field(default_factory=Counter)
    bombs: int = 0
    crowd: int = 0
    longest_s: float = 0.0
    longest: str = ""
    served: int = 0
    longest_served_s: float = 0.0
    peak_bytes: int = 0
    most_threads: int = 0
    most_sockets: int = 0
    seconds: float = 0.0
    without_cpu_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.ends.total()

    def add(self, tally: Tally) -> None:
        self.ends += tally.ends
        self.kinds += tally.kinds
        if tally.longest_s > self.longest_s:
            self.longest_s, self.longest = tally.longest_s, tally.longest
        self.problems += [f"no answer: {each}" for each in tally.hung]


def attack_server(
    target: Target,
    seed: int,
    *,
    first: int,
    requests: int,
    step_requests: int,
    deadline: float,
    bombs: Sequence[str] = tuple(BOMBS),
) -> Iterator[ClientResult]:
    """Attack in steps; yield the result so far after each, and end at the first broken promise."""
    result = ClientResult(target.name)
    began = time.monotonic()
    numbers = itertools.count(first)
    _begin_anew(target)
    baseline = [held(each.process_id) for each in target.processes]
    while result.requests < requests and time.monotonic() < deadline and not result.problems:
        step = _Step(target, seed, result, bombs, target.most(baseline[0]))
        step.run(list(itertools.islice(numbers, min(step_requests, requests - result.requests))))
        step.check(baseline)
        result.steps += 1
        result.seconds = time.monotonic() - began
        yield result


@dataclass
class _Step:
    target: Target
    seed: int
    result: ClientResult
    bombs: Sequence[str]
    most: Held

    def run(self, numbers: list[int]) -> None:
        _begin_anew(self.target)
        with (
            Probe(self.target.process.address, self.target.log_in) as probe,
            Watch(self.target.process.process_id) as watch,
            Crowd(self.target.address, self.seed, self.result.steps) as crowd,
        ):
            clock = FairClock([os.getpid(), *(each.process_id for each in self.target.processes)])
            began = time.monotonic()
            if self.target.log_in is not None:
                self._invite_strangers(len(numbers) // 4)
            inputs = self._inputs(numbers)
            self.result.add(attack(self.target.address, inputs, _CONNECTIONS, clock.now, self.target.log_in))
            self.result.without_cpu_s += time.monotonic() - began - clock.now()
        self.result.most_threads = max(self.result.most_threads, watch.most.threads)
        self.result.most_sockets = max(self.result.most_sockets, watch.most.sockets)
        if watch.most.threads > self.most.threads:
            self._complain(f"it had {watch.most.threads} threads: more than {self.most.threads}")
        if watch.most.sockets > self.most.sockets:
            self._complain(f"it had {watch.most.sockets} sockets: more than {self.most.sockets}")
        self.result.crowd += crowd.clients
        self.result.served += probe.served
        self.result.longest_served_s = max(self.result.longest_served_s, probe.longest_s)
        self.result.problems += probe.problems
        if probe.longest_s > SERVED_S:
            self.result.problems.append(f"an honest client was served after {probe.longest_s:.1f} s only")

    def _invite_strangers(self, count: int) -> None:
        flood(self.target.address, self.seed, self.result.steps, _FLOOD)
        visits = visit(self.target.address, self.seed, self.result.steps, count)
        self.result.strangers += visits.kinds
        self.result.problems += visits.problems

    def _inputs(self, numbers: list[int]) -> Iterator[Input]:
        """Insert bombs into the step's inputs, each kind in its turn."""
        every = max(1, len(numbers) // _BOMBS_IN_A_STEP)
        for at, number in enumerate(numbers):
            if at % every == every // 2:
                name = self.bombs[self.result.bombs % len(self.bombs)]
                self.result.bombs += 1
                yield bomb(name, number)
            else:
                yield draw_input(self.seed, number)

    def check(self, baseline: list[Held]) -> None:
        for process, before in zip(self.target.processes, baseline, strict=True):
            self._check_process(process, before)
        self.result.peak_bytes = peak_rss_of(self.target.process.process_id)
        if self.result.peak_bytes > MOST_BYTES:
            self._complain(f"it needed {self.result.peak_bytes // _MEGABYTE} MB")

    def _check_process(self, process: Shoal, before: Held) -> None:
        if process.exit_code is not None:
            self._complain("the process ended")
            return
        printed = process.stdout + process.stderr
        for foreign in _FOREIGN:
            if (at := printed.find(foreign)) >= 0:
                self._complain(f"it printed {printed[max(0, at - 500) : at + 3000]!r}")
        deadline = time.monotonic() + BACK_S
        while (now := held(process.process_id)).exceeds(before):
            if time.monotonic() > deadline:
                self._complain(f"{now} did not go back to {before} in {BACK_S:.0f} s")
                return
            time.sleep(0.05)

    def _complain(self, problem: str) -> None:
        self.result.problems.append(f"{self.target.name}, step {self.result.steps}: {problem}")


def _begin_anew(target: Target) -> None:
    """Delete the topics that requests write to, and create them again, so that logs stay short."""
    with Wire(target.processes[-1].address) as wire:
        wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=[*TOPICS, PROBED_TOPIC], timeout_ms=10_000)
        for name in (*TOPICS, PROBED_TOPIC):
            wire.create_topic(name, 2)
