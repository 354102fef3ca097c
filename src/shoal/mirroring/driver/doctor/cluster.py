"""
One cluster, from the names of its servers to its clock.

Each check rests on the one before: if a name does not resolve, there is nothing to connect to. A check that
was impossible is reported as such, with the reason.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from ....client.cluster import Cluster
from ....client.config import ClientConfig
from ....client.connection import Connection
from ....client.opening import CONNECT_S, open_socket, open_tls
from ....client.quorum import controller_ahead_ms
from ....client.reachable import unreachable_brokers
from ....errors import AccessRefused, Disconnected, ShoalError
from ....net.address import Address
from ....protocol.apis import ApiKey
from ...model.checkup import Check, Finding, Verdict, not_looked_at

__all__ = ["check_cluster"]

_CHECKS = (
    *(Check.NAME, Check.CONNECTION, Check.TLS, Check.LOGIN),
    *(Check.VERSIONS, Check.ADVERTISED, Check.CLOCK),
)

_NAME_PATIENCE_S = 5.0

#: A broker's certificate that expires sooner is worth a warning.
_SOON_S = 14 * 86_400.0

#: With NTP, clocks differ by milliseconds.
_MOST_AHEAD_S = 60.0

_SHARED = (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
_APIS = {
    "source": (
        *_SHARED,
        *(ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP),
        *(ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT),
    ),
    "destination": (
        *_SHARED,
        *(ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE, ApiKey.DESCRIBE_CONFIGS),
        *(ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS),
    ),
}
"""What a mirror without further options sends to each side."""


def check_cluster(config: ClientConfig) -> Iterator[Finding]:
    """
    Look at one cluster.

    Args:
        config: How to reach it; its name is ``source`` or ``destination``.

    Yields:
        A finding or more for each check. If one is impossible, so are those behind it.

    """
    yield from _ClusterCheck(config).run()


class _Ended(Exception):
    """The checks behind this one are impossible."""


class _ClusterCheck:
    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._resolved: list[Address] = []
        self._reached: list[Address] = []

    def run(self) -> Iterator[Finding]:
        steps: Sequence[tuple[Check, Callable[[], Iterator[Finding]]]] = (
            (Check.NAME, self._names),
            (Check.CONNECTION, self._connections),
            (Check.TLS, self._tls),
            (Check.LOGIN, self._login),
        )
        for check, step in steps:
            try:
                yield from step()
            except _Ended:
                yield from self._rest_behind(check)
                return
        with Cluster(self._config) as cluster:
            try:
                cluster.refresh([])
            except ShoalError as error:
                remedy = "Check that this is a Kafka broker of version 2.1 or newer, and read its log"
                yield self._finding(Check.VERSIONS, Verdict.WRONG, str(error), remedy)
                yield from self._rest_behind(Check.VERSIONS)
                return
            yield from self._advertised(cluster)
            yield from self._versions(cluster)
            yield self._clock(cluster)

    def _finding(self, check: Check, verdict: Verdict, text: str, remedy: str = "") -> Finding:
        return Finding(self._config.name, check, verdict, text, remedy)

    def _rest_behind(self, check: Check) -> list[Finding]:
        rest = _CHECKS[_CHECKS.index(check) + 1 :]
        return not_looked_at(self._config.name, rest, f"the check before failed: {check.value}")

    # Before there is a connection

    def _names(self) -> Iterator[Finding]:
        reasons = _resolve_all(self._config.bootstrap)
        self._resolved = [address for address, reason in reasons.items() if reason is None]
        here = socket.gethostname()
        for address in reasons.keys() - set(self._resolved):
            yield self._finding(
                Check.NAME,
                Verdict.WARNING if self._resolved else Verdict.WRONG,
                f"the name {address.host!r} does not resolve on host {here} ({reasons[address]})",
                f"Correct {address} in bootstrap.servers, or add the name to DNS or to /etc/hosts on {here}",
            )
        if not self._resolved:
            raise _Ended
        names = ", ".join(dict.fromkeys(each.host for each in self._resolved))
        yield self._finding(Check.NAME, Verdict.GOOD, f"resolved: {names}")

    def _connections(self) -> Iterator[Finding]:
        errors: dict[Address, Disconnected] = {}
        for address in self._resolved:
            try:
                open_socket(address, CONNECT_S).close()
            except Disconnected as error:
                errors[address] = error
            else:
                self._reached.append(address)
        for address, failure in errors.items():
            yield self._finding(
                Check.CONNECTION,
                Verdict.WARNING if self._reached else Verdict.WRONG,
                str(failure),
                f"Check that a broker listens at {address}, and that firewalls between let it through",
            )
        if not self._reached:
            raise _Ended
        reached = ", ".join(map(str, self._reached))
        yield self._finding(Check.CONNECTION, Verdict.GOOD, f"connected: {reached}")

    def _tls(self) -> Iterator[Finding]:
        security = self._config.security
        if security is None or security.tls is None:
            yield self._without_tls(security.mechanism if security else None)
            return
        good = 0
        for address in self._reached:
            try:
                connected = open_socket(address, CONNECT_S)
                with closing(open_tls(connected, address, security.tls, CONNECT_S)) as encrypted:
                    version, certificate = encrypted.version(), encrypted.getpeercert()
            except ShoalError as error:
                yield self._finding(Check.TLS, Verdict.WRONG, str(error))
                continue
            good += 1
            yield self._certificate(address, version or "TLS", certificate or {})
        if not good:
            raise _Ended

    def _without_tls(self, mechanism: str | None) -> Finding:
        if mechanism is None:
            return self._finding(Check.TLS, Verdict.GOOD, "none, by security.protocol")
        return self._finding(
            Check.TLS,
            Verdict.WARNING,
            f"none, by security.protocol: the login by {mechanism} and all records can be read on the way",
            "If the cluster has a listener with TLS, set security.protocol=SASL_SSL",
        )

    def _certificate(self, address: Address, version: str, certificate: dict[str, Any]) -> Finding:
        until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        day = datetime.fromtimestamp(until, UTC)
        text = f"{address}: {version}, with a certificate until {day:%Y-%m-%d}"
        if until - time.time() < _SOON_S:
            return self._finding(Check.TLS, Verdict.WARNING, text, "Renew the broker's certificate")
        return self._finding(Check.TLS, Verdict.GOOD, text)

    def _login(self) -> Iterator[Finding]:
        """Open a whole connection to each server: with TLS 1.3, only now a broker refuses our certificate."""
        security = self._config.security
        mechanism = security.mechanism if security else None
        accepted = []
        for address in self._reached:
            try:
                Connection(
                    address,
                    client_id=self._config.client_id,
                    timeout_s=min(self._config.request_timeout_s, 2 * CONNECT_S),
                    security=security,
                    sizes=self._config.answer_sizes,
                ).close()
            except AccessRefused as error:
                yield self._finding(Check.LOGIN, Verdict.WRONG, str(error), _login_remedy(error))
            except ShoalError as error:
                remedy = "Check security.protocol and sasl.mechanism against that listener, and read its log"
                yield self._finding(Check.LOGIN, Verdict.WRONG, str(error), remedy)
            else:
                accepted.append(str(address))
        if not accepted:
            raise _Ended
        if mechanism:
            text = f"{', '.join(accepted)}: logged in by {mechanism}"
        elif security is not None and security.tls is not None and security.tls.certificates:
            text = f"{', '.join(accepted)}: accepted, with the client's certificate"
        else:
            text = f"{', '.join(accepted)}: accepted without a login, as the principal ANONYMOUS"
        yield self._finding(Check.LOGIN, Verdict.GOOD, text)

    # With metadata

    def _advertised(self, cluster: Cluster) -> Iterator[Finding]:
        brokers = cluster.metadata.brokers
        errors = unreachable_brokers(cluster, brokers.values())
        verdict = Verdict.WRONG if len(errors) == len(brokers) else Verdict.WARNING
        for error in errors:
            yield self._finding(Check.ADVERTISED, verdict, str(error))
        if not errors:
            found = ", ".join(f"{node} at {address}" for node, address in sorted(brokers.items()))
            yield self._finding(Check.ADVERTISED, Verdict.GOOD, f"reached: {found}")

    def _versions(self, cluster: Cluster) -> Iterator[Finding]:
        wanted = _APIS[self._config.name]
        supporting = []
        for node in sorted(cluster.metadata.brokers):
            try:
                connection = cluster.connection(node)
            except ShoalError as error:
                text = f"broker {node}: {error}"
                yield self._finding(Check.VERSIONS, Verdict.NOT_LOOKED_AT, text)
                continue
            missing = [each for each in wanted if not connection.speaks(each)]
            if missing:
                names = ", ".join(each.name for each in missing)
                yield self._finding(
                    Check.VERSIONS,
                    Verdict.WRONG,
                    f"broker {node} supports no version that shoal supports of: {names}",
                    "Upgrade the broker: shoal needs these requests of Kafka's protocol",
                )
                continue
            supporting.append((node, tuple(connection.version(each) for each in wanted)))
        if supporting:
            nodes = ", ".join(str(node) for node, _ in supporting)
            text = f"brokers {nodes}: support the {len(wanted)} requests that a mirror sends there"
            if len({versions for _, versions in supporting}) > 1:
                text += ", in different versions: perhaps of an upgrade that is not complete"
            yield self._finding(Check.VERSIONS, Verdict.GOOD, text)

    def _clock(self, cluster: Cluster) -> Finding:
        ahead_ms = controller_ahead_ms(cluster)
        if ahead_ms is None:
            return self._finding(
                Check.CLOCK,
                Verdict.NOT_LOOKED_AT,
                "the cluster does not report its controller's clock: it uses ZooKeeper, is older than Kafka "
                "3.3, or does not allow this principal DESCRIBE on the cluster",
            )
        side = "ahead of" if ahead_ms > 0 else "behind"
        text = f"the controller's clock is {abs(ahead_ms) / 1000:,.1f} s {side} ours"
        if abs(ahead_ms) / 1000 > _MOST_AHEAD_S:
            remedy = "Set both clocks, by NTP: the age of records and the expiry of tokens depend on them"
            return self._finding(Check.CLOCK, Verdict.WARNING, text, remedy)
        return self._finding(Check.CLOCK, Verdict.GOOD, text)


def _login_remedy(error: AccessRefused) -> str:
    if not error.is_login:
        return ""
    return "Check sasl.mechanism and sasl.jaas.config, and that the cluster has this user"


def _resolve_all(addresses: Sequence[Address]) -> dict[Address, str | None]:
    """Look all names up at the same time; return the reason of each failure, None for a success."""
    reasons: dict[Address, str | None] = {}

    def resolve(address: Address) -> None:
        try:
            socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reasons[address] = getattr(error, "strerror", None) or str(error)
        else:
            reasons[address] = None

    threads = [threading.Thread(target=resolve, args=(each,), daemon=True) for each in addresses]
    for each in threads:
        each.start()
    deadline = time.monotonic() + _NAME_PATIENCE_S
    for each in threads:
        each.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer of the name servers in {_NAME_PATIENCE_S:g} s"
    return {each: reasons.get(each, late) for each in addresses}
