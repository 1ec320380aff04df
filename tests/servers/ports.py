"""A free port."""

import socket


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
