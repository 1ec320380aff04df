"""Flows of Redis queues, without a server."""
