"""Docker's compose, whichever version is here."""

from __future__ import annotations

import shutil


def compose_tool() -> list[str]:
    """What its command begins with: the first version's, else the second's."""
    return ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
