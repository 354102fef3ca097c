"""
Kafka's requests and responses: bytes in, values out, and back; no sockets.

The messages of the control plane are the classes of ``kafka.protocol``, used by :mod:`.codec`.
The two messages that carry batches are encoded and decoded in :mod:`.fetch` and :mod:`.produce`, without a
copy of a batch.
"""
