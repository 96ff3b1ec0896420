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
    return True
