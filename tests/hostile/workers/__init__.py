"""Attacks on the report server by lying workers and strangers, with a real operator on a real API server."""
