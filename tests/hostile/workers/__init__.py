"""Workers that lie, and strangers who knock at the report server, against a real operator on a real API server."""
