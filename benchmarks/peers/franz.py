"""franz-go's balancer, in a Go program that is built on first use: ``franz/main.go``."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.peers.wire import Peer, PeerUnavailableError
from kafka_coop.testing.jars import cached

_SOURCE: Final = Path(__file__).with_name("franz")
_FALLBACK: Final = "/usr/local/go/bin/go"
"""Where Go's own installer puts it, often off the PATH."""


def version() -> str:
    """The release of franz-go that go.mod pins."""
    found = re.search(r"twmb/franz-go (\S+)", (_SOURCE / "go.mod").read_text())
    assert found is not None, "go.mod names franz-go"
    return found[1]


class FranzPeer(Peer):
    """franz-go's leader.

    Raises:
        PeerUnavailableError: There is no Go, or the program does not build.
    """

    def __init__(self) -> None:
        files = [*sorted(_SOURCE.glob("*.go")), _SOURCE / "go.mod", _SOURCE / "go.sum"]
        state = hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
        super().__init__([cached(f"franz-peer-{state}", _build) / "franz"])


def _build(folder: Path) -> None:
    go = shutil.which("go") or shutil.which(_FALLBACK)
    if go is None:
        raise PeerUnavailableError(
            "franz-go needs Go 1.26 or later: install it (go.dev/doc/install)"
        )
    done = subprocess.run(
        [go, "build", "-mod=readonly", "-buildvcs=false", "-o", folder / "franz", "."],
        cwd=_SOURCE,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PeerUnavailableError(f"franz-go's program does not build: {done.stderr[-2000:]}")
