"""Spark's JVM: found, started cheaply, and a session in it."""
