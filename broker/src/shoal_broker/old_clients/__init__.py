"""Batches from and for clients before Kafka 0.11."""
