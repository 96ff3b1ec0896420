"""Exit statuses, and the error that ends a command with one."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """What a command's exit status says. `kafka-coop --help` lists them."""

    OK = 0
    """Done; the answer is good."""
    NO = 1
    """Done; the answer is bad: a check failed, an invariant was violated."""
    USAGE = 2
    """The command line, or a file or setting that it names, is wrong; or nothing can be written."""
    NO_SUCH_GROUP = 3
    """No such group, or no such topic."""
    WRONG_KIND = 4
    """The group exists, but is not of a kind that this command knows (share, connect, …)."""
    UNREACHABLE = 5
    """No broker answered in time."""
    UNAUTHORISED = 6
    """A broker refused these credentials, or they are not allowed to do this."""
    UNAVAILABLE = 7
    """Something that the command needs is not installed here."""
    INTERRUPTED = 130
    """Ctrl-C, or SIGTERM."""
    PIPE_CLOSED = 141
    """The reader of the output went away: what a shell says of SIGPIPE."""


MEANINGS = {
    Exit.OK: "done",
    Exit.NO: "the answer is no: a check failed, an invariant was violated",
    Exit.USAGE: "the command line, or a file or setting it names, is wrong",
    Exit.NO_SUCH_GROUP: "no such group",
    Exit.WRONG_KIND: "the group is of another kind: share, streams, connect",
    Exit.UNREACHABLE: "no broker answered in time",
    Exit.UNAUTHORISED: "a broker refused the credentials, or what they asked for",
    Exit.UNAVAILABLE: "something the command needs is not installed",
    Exit.INTERRUPTED: "interrupted",
    Exit.PIPE_CLOSED: "the output's reader went away",
}


class CommandError(Exception):
    """Ends a command: one line for the user, and the exit status."""

    def __init__(self, text: str, status: Exit) -> None:
        super().__init__(text)
        self.status = status
