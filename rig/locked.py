"""Real Kafka brokers whose listeners require TLS, certificates and passwords, with ACLs."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rig.authority import Authority, Identity, tls_listener
from rig.cluster import KafkaCluster
from rig.jars import KAFKA_VERSION
from rig.wait import wait_until

__all__ = ["PASSWORDS", "LockedKafka", "jaas", "locked_kafka"]

PASSWORDS = {"alice": "alice=secret 7c1e", "bob": "bob-secret-9f27"}
"""Alice may do everything; Bob may do what ACLs say."""

_SUPER_USERS = "User:ANONYMOUS;User:alice;User:CN=alice"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "MISNAMED": "SSL",
    "EXPIRED": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "OAUTH": "SASL_PLAINTEXT",
}

SHORT_SESSION_MS = 5000
"""Session length of the listener SHORT, after which a client has to renew its login.

Clients renew it after 85 % of that time. If a broker lacks CPU and reads their last request only after
the end, it disconnects them.
"""


@dataclass(frozen=True, slots=True)
class LockedKafka:
    """A running cluster.

    Its listeners:

    - PLAINTEXT: ``cluster.bootstrap``
    - TLS, and MUTUAL, which requires a client certificate
    - MISNAMED and EXPIRED: TLS with bad certificates
    - SASL (without TLS), SASLTLS, and SHORT (SASL with short sessions)
    - OAUTH: OAUTHBEARER only; the listener accepts any unsigned token under its subject
    """

    cluster: KafkaCluster
    authority: Authority
    alice: Identity
    directory: Path

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Grant operations to a user, and wait until a broker applies the ACL after its controller."""
        allowed = ResourcePatternType.LITERAL, f"User:{user}", "*"
        bindings = [AclBinding(kind, name, *allowed, each, AclPermissionType.ALLOW) for each in operations]
        admin = self._admin
        for future in admin.create_acls(bindings).values():
            future.result(30)

        def are_known() -> bool:
            return {each.operation for each in self._acls(_acls_of(user, kind, name))} >= set(operations)

        wait_until(are_known, f"the ACLs of {user} on {name}")

    def forbid(self, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Delete one ACL of a user, and wait until a broker does not have it."""
        self._delete(_acls_of(user, kind, name, operation), f"{user} to lack {operation} on {name}")

    def acls_of(self, user: str) -> list[AclBinding]:
        """Return all ACLs of a user."""
        return self._acls(_acls_of(user))

    def forbid_everything(self, user: str) -> None:
        """Delete all ACLs of a user, and wait until a broker has none of them.

        A test that begins with a user of no rights needs this in a cluster that others use: WRITE on any
        topic grants a producer id, too (KIP-679).
        """
        self._delete(_acls_of(user), f"{user} to have no ACLs")

    @property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap})

    def _acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        admin = self._admin  # held: a client that is collected never completes its futures
        found: list[AclBinding] = admin.describe_acls(wanted).result(30)
        return found

    def _delete(self, unwanted: AclBindingFilter, what: str) -> None:
        admin = self._admin
        admin.delete_acls([unwanted])[unwanted].result(30)
        wait_until(lambda: not self._acls(unwanted), what)


def _acls_of(
    user: str,
    kind: ResourceType = ResourceType.ANY,
    name: str | None = None,
    operation: AclOperation = AclOperation.ANY,
) -> AclBindingFilter:
    pattern = ResourcePatternType.ANY if name is None else ResourcePatternType.LITERAL
    return AclBindingFilter(kind, name, pattern, f"User:{user}", None, operation, AclPermissionType.ANY)


def jaas(mechanism: str, username: str, password: str | None = None) -> str:
    """Return a client's ``sasl.jaas.config``; the password is the user's own by default."""
    if mechanism == "OAUTHBEARER":
        return f'{_OAUTH} required unsecuredLoginStringClaim_sub="{username}";'
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    secret = PASSWORDS[username] if password is None else password
    return f'{module} required username="{username}" password="{secret}";'


@contextlib.contextmanager
def locked_kafka(
    version: str = KAFKA_VERSION,
    jvm: Sequence[str] = (),
    brokers: int = 1,
    config: Mapping[str, object] = MappingProxyType({}),
    heap: str = "768m",
) -> Iterator[LockedKafka]:
    """Run the cluster inside a ``with`` block.

    Args:
        jvm: Further options of the first broker's JVM.
        config: Further settings of each broker.
        heap: The JVM's ``-Xmx``.
    """
    with tempfile.TemporaryDirectory(prefix="rig-locked-") as name:
        directory = Path(name)
        authority = Authority()
        (directory / "ca.pem").write_text(authority.pem)
        authority.issue("broker", "127.0.0.1", "localhost").write_pem(directory / "broker.pem")
        authority.issue("misnamed", "other.example").write_pem(directory / "misnamed.pem")
        authority.issue("expired", "127.0.0.1", expired=True).write_pem(directory / "expired.pem")
        scram = [
            argument
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for user, password in PASSWORDS.items()
            for argument in ("--add-scram", f'{mechanism}=[name="{user}",password="{password}"]')
        ]
        cluster = KafkaCluster(
            brokers=brokers,
            version=version,
            broker_jvm={1: jvm},
            config={**_config(directory), **config},
            heap=heap,
            listeners=_LISTENERS,
            format_options=scram,
        )
        with cluster:
            yield LockedKafka(cluster, authority, authority.issue("alice"), directory)


def _config(directory: Path) -> dict[str, object]:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    config: dict[str, object] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": _SUPER_USERS,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.short.connections.max.reauth.ms": SHORT_SESSION_MS,
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        # Kafka's default checks unsigned tokens (OAuthBearerUnsecuredValidatorCallbackHandler).
        "listener.name.oauth.oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER", "broker"),
    }
    for name, protocol in _LISTENERS.items():
        prefix = f"listener.name.{name.lower()}"
        if protocol.endswith("SSL"):
            own = directory / f"{name.lower()}.pem"
            own = own if own.exists() else directory / "broker.pem"
            config |= tls_listener(name, own, directory / "ca.pem")
        if protocol.startswith("SASL") and name != "OAUTH":
            config[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN} required {users};"
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                config[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_SCRAM} required;"
            config[f"{prefix}.plain.connections.max.reauth.ms"] = SHORT_SESSION_MS if name == "SHORT" else 0
    return config
