"""A member of a group: its requests, the results that it waits for, and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from shoal.error_codes import ErrorCode

from ..api_error import ApiError

__all__ = ["Join", "JoinResult", "Member", "MemberIdRequired", "Pending", "Result", "Sync", "SyncResult"]

Result = TypeVar("Result")


class MemberIdRequired(ApiError):
    """A new member has to join again, with an id."""

    def __init__(self, member_id: str) -> None:
        super().__init__(ErrorCode.MEMBER_ID_REQUIRED, "join again with the member id given")
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request; the protocols by name, the preferred one first."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    version: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; before v5 protocol type and name are None. The leader sends the assignments."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class Pending(Generic[Result]):
    """The outcome that a request waits for: a result, or an error."""

    def __init__(self, result: Result | None = None) -> None:
        self.result: Result | ApiError | None = result


@dataclass(frozen=True, slots=True)
class JoinResult:
    """
    A member's view of a generation when it begins.

    Attributes:
        members: ``(member id, instance id, subscription)`` of all, for the
            leader alone.
        skip_assignment: The leader is to leave the assignment as it is (KIP-814).

    """

    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: Sequence[tuple[str, str | None, bytes]] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResult:
    """A member's part of the assignment."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(slots=True)
class Member:
    """
    A member of a group.

    Attributes:
        join: Its last JoinGroup.
        expires_at: The end of its session without another request, on the monotonic clock.
        joining: Set while it waits for the other members to join.
        syncing: Set while it waits for the leader's assignment.
        synced: Whether it requested this generation's assignment.

    """

    member_id: str
    join: Join
    expires_at: float = 0.0
    assignment: bytes = b""
    joining: Pending[JoinResult] | None = None
    syncing: Pending[SyncResult] | None = None
    synced: bool = False

    def renew_session(self, now: float) -> None:
        """Let the session begin again."""
        self.expires_at = now + self.join.session_timeout_ms / 1000

    def answer_join(self, answer: JoinResult | ApiError) -> None:
        """Answer the member's JoinGroup, if one waits."""
        if self.joining is not None:
            self.joining.result, self.joining = answer, None

    def answer_sync(self, answer: SyncResult | ApiError) -> None:
        """Answer the member's SyncGroup, if one waits."""
        if self.syncing is not None:
            self.syncing.result, self.syncing = answer, None
