"""A message handler that drops records that are marked as internal, and masks card numbers in values.

    PYTHONPATH=examples shoal mirror-maker \
        --consumer.config consumer.properties --producer.config producer.properties --include orders \
        --message.handler mask_values:MaskValues --message.handler.args '[0-9]{12,19}'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from shoal import ConsumerRecord
from shoal.handlers import MirrorMakerMessageHandler, ProducerRecord


class MaskValues(MirrorMakerMessageHandler):
    """Drop internal records, and mask the matches of a regular expression, the argument, in values."""

    def __init__(self, args: str) -> None:
        self._secret = re.compile(args.encode())

    def handle(self, record: ConsumerRecord) -> Sequence[ProducerRecord]:
        if ("internal", b"true") in record.headers:
            return []
        made = ProducerRecord.of(record)
        if record.value is None:
            return [made]
        return [replace(made, value=self._secret.sub(lambda found: b"*" * len(found[0]), record.value))]
