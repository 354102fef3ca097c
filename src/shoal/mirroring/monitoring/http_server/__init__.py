"""
The HTTP server behind ``--metrics`` and ``--ui``.

``server`` answers requests, ``access`` decides which ones, and ``slots`` bounds what connections can hold.
"""
