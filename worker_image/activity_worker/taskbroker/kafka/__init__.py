"""Kafka for a broker: topics that it reads tasks from, and topics for its retries and dead letters."""
