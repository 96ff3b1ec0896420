"""A second librdkafka consumer, for what no callback may ask of its own.

confluent-kafka notes in a variable of the thread that it is inside a call, and the end of a call in
there (`list_topics`, `cluster_id`, `set_sasl_credentials`: all that make use of it) clears it. The
next callback of the same poll then ends the process, by an assertion in C. Another consumer has a
variable of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import confluent_kafka

_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb")
"""The first consumer's, which guards them; closing this one would call them. ``oauth_cb`` it needs
to log in, by a thread of librdkafka's."""


class Aside:
    """Opens one for each question: they are rare, and it costs threads and connections.

    Args:
        config: librdkafka's configuration. It joins no group, as it subscribes to nothing.
        options: confluent-kafka's; what it logs to a ``logger`` comes when it is closed.
    """

    def __init__(self, config: Mapping[str, Any], **options: Any) -> None:
        self._options = options
        self._config = {key: given for key, given in config.items() if key not in _CALLBACKS}

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """What the next one logs in with."""
        self._config |= {"sasl.username": username, "sasl.password": password}

    def consumer(self) -> closing[confluent_kafka.Consumer]:
        """One that is asked, and closed at the end of a ``with``."""
        return closing(confluent_kafka.Consumer(self._config, **self._options))
