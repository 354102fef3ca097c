"""Addresses, listening sockets, TLS handshakes, and turns at scarce resources; no Kafka protocol."""
