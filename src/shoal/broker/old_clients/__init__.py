"""What clients from before Kafka 0.11 write and read."""
