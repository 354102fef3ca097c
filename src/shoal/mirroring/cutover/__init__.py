"""
``shoal cutover``: move topics to the destination of their mirror, with proof.

Six gates in a fixed order (:mod:`.gates`) decide by observations of both clusters (:mod:`.observing`).
:mod:`.run` leads through them. Until the fifth nothing is written at all, and the fifth
commits offsets of consumer groups at the destination. The last one writes the certificate
(:mod:`.certificate`), from which the way back begins (:mod:`.failback`).
"""
