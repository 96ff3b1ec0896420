"""Docker's compose, whichever version is here."""

from __future__ import annotations

import shutil
import subprocess


def compose_tool() -> list[str] | None:
    """What its command begins with: the first version's, else the second's. None: neither is here.

    The second is a plugin, which a client may be without.
    """
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    plugin = ["docker", "compose"]
    if shutil.which("docker") is None:
        return None
    asked = subprocess.run([*plugin, "version"], capture_output=True, check=False)
    return None if asked.returncode else plugin
