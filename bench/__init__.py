"""
What mirroring costs: shoal and what a user would pick instead, between two real Kafka clusters.

    python -m bench            everything; takes a while
    python -m bench --help     what can be chosen

How it measures, and how to add a mover, is told in `bench.mover` and `bench.measure`.
"""
