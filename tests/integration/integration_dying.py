"""A member's process of which there is no more to know: it dies beside its watchdog."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

_DIES = """
import json, logging, os, signal, sys
from kafka_coop.config import parse
from kafka_coop.types import Generation, GroupMetadata, MemberId
from kafka_coop.watchdog.guard import Guard

config, how = sys.argv[1:]
if how == "full":
    os.set_blocking(2, False)
    try:
        while os.write(2, b"x" * 4096):
            pass
    except BlockingIOError:
        os.set_blocking(2, True)
settings = parse(json.loads(config)).connection
guard = Guard(settings, logging.getLogger("of the test"), loads_after=3600.0)
guard.start()
me = GroupMetadata(
    group_id="g", generation=Generation(1), member_id=MemberId("dead"), instance_id=None
)
guard.identity(me)
print(guard._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""The watchdog is to load its modules in an hour, or now."""


def dying(config: Mapping[str, Any], how: str = "") -> list[str]:
    """Its command, which prints the watchdog's process id. ``full``: nobody reads its errors."""
    return [sys.executable, "-c", _DIES, json.dumps({**config, "group.id": "g"}), how]
