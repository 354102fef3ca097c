"""
The requests and responses we speak, as bytes in and out; no sockets here.

The control plane's messages are the classes of ``kafka.protocol``, by way of
:mod:`.codec`; the two messages that carry batches are made by hand, in
:mod:`.fetch` and :mod:`.produce`.
"""
