"""Sockets that listen, TLS on them, and turns at what is scarce; knows nothing of Kafka's protocol."""
