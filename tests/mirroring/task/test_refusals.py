"""The table of reactions to error codes: the first line that fits a code decides, so their order matters."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import REFUSED_WRITERS
from shoal.mirroring.task.refusals import Reaction, RefusedRequest, reaction_to

ALONE = RefusedRequest()
SEVERAL = RefusedRequest(can_be_less=True)
SKIPPING = RefusedRequest(skips=True)


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
        (ErrorCode.CORRUPT_MESSAGE, RefusedRequest(skips=True, is_suspect=True), Reaction.SKIP),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, SEVERAL, Reaction.TRY_AGAIN),
        (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            RefusedRequest(skips=True, is_suspect=True),
            Reaction.TRY_AGAIN,
        ),
        (ErrorCode.UNKNOWN_SERVER_ERROR, SKIPPING, Reaction.TRY_AGAIN),
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            RefusedRequest(skips=True, can_be_less=True),
            Reaction.SEND_LESS,
        ),
        (ErrorCode.MESSAGE_TOO_LARGE, SKIPPING, Reaction.SKIP),
        (ErrorCode.MESSAGE_TOO_LARGE, ALONE, Reaction.STOP),
        (ErrorCode.INVALID_TIMESTAMP, SKIPPING, Reaction.SKIP),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ALONE, Reaction.STOP),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, SKIPPING, Reaction.STOP),
    ],
)
def test_reaction_to_a_code_in_several_lines_is_that_of_the_first(
    code: ErrorCode, refused: RefusedRequest, reaction: Reaction
) -> None:
    assert reaction_to(code, refused) is reaction


@pytest.mark.parametrize("code", sorted(REFUSED_WRITERS))
def test_reaction_to_a_refused_writer_leaves_nothing_out(code: ErrorCode) -> None:
    assert reaction_to(code, SKIPPING) is Reaction.STOP


def test_reaction_to_every_code_has_a_line() -> None:
    assert {type(reaction_to(code, ALONE)) for code in ErrorCode} == {Reaction}
