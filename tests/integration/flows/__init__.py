"""Flows on a real Redis server, with the published package as the other side."""
