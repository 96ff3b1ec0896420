"""The kernel finds out by itself that a connection leads nowhere any more.

A NAT, firewall or load balancer forgets a flow that was idle for some minutes, and tells nobody.
What is written then gets lost, and the kernel repeats it for a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import socket

_IDLE = 10
_INTERVAL = 5
_PROBES = 2
_LIMIT = _IDLE + _PROBES * _INTERVAL
"""Seconds until a dead flow is found: less than a session's 45, and less than the half minute after
which the strictest middleboxes forget."""

_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPALIVE": _IDLE,  # macOS's name for it
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _PROBES,
    "TCP_USER_TIMEOUT": _LIMIT * 1000,  # what was written and not acknowledged is not probed
}
"""No system has all of them."""


def probe(sock: socket.socket) -> None:
    """Has a TCP connection fail within 20 s of its flow's death, and keeps idle flows in memory.

    A packet each way every 10 s, while nothing else goes over it. Where a system lacks an option
    or refuses it, its own timing holds: hours, as a rule. No connection fails for that.
    """
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
