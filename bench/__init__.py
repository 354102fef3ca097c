"""The cost of mirroring: shoal and its alternatives, between two real Kafka clusters.

    python -m bench            everything; takes a while
    python -m bench --help     lists the options

If you want to know how it measures, or to add a mover, read `bench.measure` and `bench.mover`.
"""
