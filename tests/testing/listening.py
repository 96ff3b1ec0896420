"""Whether anybody is there."""

from __future__ import annotations

import socket


def is_served(servers: str) -> bool:
    """Whether connections to ``host:port`` are taken."""
    host, port = servers.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # a proxy took it, and at once gave it up: nobody is behind it
        return True
    return True
