"""The reactions to error codes: the first rule that fits a code decides, so their order matters."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import REFUSED_WRITERS
from shoal.mirroring.task.refusals import Reaction, reaction_to

ALONE = {"can_be_less": False, "is_suspect": False, "skips": False}
SEVERAL = ALONE | {"can_be_less": True}
SKIPPING = ALONE | {"skips": True}
SUSPECT = SKIPPING | {"is_suspect": True}


@pytest.mark.parametrize(
    ("code", "refused", "reaction"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, SEVERAL, Reaction.ALIGN),
        (ErrorCode.REQUEST_TIMED_OUT, SKIPPING, Reaction.ALIGN),
        (ErrorCode.RECORD_LIST_TOO_LARGE, SEVERAL, Reaction.SEND_LESS),
        (ErrorCode.MESSAGE_TOO_LARGE, SEVERAL, Reaction.SEND_LESS),
        (ErrorCode.CORRUPT_MESSAGE, SEVERAL, Reaction.SEND_LESS),
        (ErrorCode.UNKNOWN_SERVER_ERROR, SEVERAL, Reaction.SEND_LESS),
        (ErrorCode.CORRUPT_MESSAGE, ALONE, Reaction.TRY_AGAIN),
        (ErrorCode.CORRUPT_MESSAGE, SKIPPING, Reaction.TRY_AGAIN),
        (ErrorCode.CORRUPT_MESSAGE, SUSPECT, Reaction.SKIP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, SEVERAL, Reaction.TRY_AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, SUSPECT, Reaction.TRY_AGAIN),
        (ErrorCode.UNKNOWN_SERVER_ERROR, SKIPPING, Reaction.TRY_AGAIN),
        (ErrorCode.MESSAGE_TOO_LARGE, SEVERAL | {"skips": True}, Reaction.SEND_LESS),
        (ErrorCode.MESSAGE_TOO_LARGE, SKIPPING, Reaction.SKIP),
        (ErrorCode.MESSAGE_TOO_LARGE, ALONE, Reaction.STOP),
        (ErrorCode.INVALID_TIMESTAMP, SKIPPING, Reaction.SKIP),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ALONE, Reaction.STOP),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, SKIPPING, Reaction.STOP),
    ],
)
def test_reaction_to_a_code_is_that_of_the_first_rule(
    code: ErrorCode, refused: dict[str, bool], reaction: Reaction
) -> None:
    assert reaction_to(code, **refused) is reaction


@pytest.mark.parametrize("code", sorted(REFUSED_WRITERS))
def test_reaction_to_a_refused_writer_leaves_nothing_out(code: ErrorCode) -> None:
    assert reaction_to(code, **SKIPPING) is Reaction.STOP
