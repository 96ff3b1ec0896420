"""A Ctrl-C that strikes where the user's thread waits for the membership's leaves nothing locked.

It is tried at every step of Python code in there, that of the standard library included.
"""

from __future__ import annotations

import threading
from typing import Any

from prometheus_client import CollectorRegistry
from striking import wherever_it_strikes

from kafka_coop import CoopConsumer
from kafka_coop.backend.mailbox import Mailbox, TopicErrors


def test_the_mailbox_is_open_wherever_it_strikes_in_a_wait_for_an_item() -> None:
    mailbox = Mailbox()
    for _ in wherever_it_strikes(lambda: mailbox.wait(0)):
        assert not mailbox._lock.locked()
    mailbox.put(TopicErrors(errors={"orders": 3}))
    mailbox.wait(60)
    assert mailbox.begin() is not None


def test_the_membership_goes_on_wherever_it_strikes_in_a_wait_for_commits() -> None:
    config = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        backend: Any = consumer._backend
        for _ in wherever_it_strikes(backend.let_commits_in):
            alive = threading.Event()
            backend._call(alive.set)
            assert alive.wait(10)
