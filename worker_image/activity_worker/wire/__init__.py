"""Clients, listeners, keys and schemas that the worker and the operator both need."""
