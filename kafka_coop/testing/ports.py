"""Ports that are nobody else's, also while nobody listens on them.

A broker that is down, and a port that stands empty until somebody listens there, keep their ports
from other clusters on the machine, which start and stop all the time where tests run in parallel:
else one of them gets the port, and the broker can't start again.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from kafka_coop.testing.broker_settings import HOST

# Below the range from which the kernel picks ports for outgoing connections, on Linux and on
# macOS: else a client that reconnects could take the port of a broker that is down, or even
# connect to itself on it.
_PORTS: Final = range(20000, 32000)


class NoFreePortsError(RuntimeError):
    """Every port that brokers may have is taken."""


def free_ports(count: int) -> list[int]:
    """Ports nobody has. Chance keeps clusters that start at the same time apart.

    Raises:
        NoFreePortsError: There are fewer.
    """
    ports, give_back = hold_ports(count)
    give_back()
    return ports


def hold_ports(count: int) -> tuple[list[int], Callable[[], None]]:
    """Ports that no other cluster takes before they are given back.

    A socket is bound to each and does not listen. Beside it binds who sets SO_REUSEADDR, as
    every server does that wants to start again soon; `hold_ports` itself does not, and so looks
    elsewhere. Where the system is not Linux such a server could not bind, and nothing is held.

    Returns:
        The ports, and what gives them back; so does the end of the process.

    Raises:
        NoFreePortsError: There are fewer.
    """
    with ExitStack() as held:
        free: list[int] = []
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(free) == count:
                break
            holder = socket.socket()
            try:
                holder.bind((HOST, port))
            except OSError:
                holder.close()
                continue
            held.enter_context(holder)
            # Only now: two who both had set it could both have bound.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.append(port)
        if len(free) < count:
            raise NoFreePortsError(f"no {count} free ports between {_PORTS[0]} and {_PORTS[-1]}")
        kept = held.pop_all()
        if sys.platform != "linux":
            kept.close()
        return free, kept.close
