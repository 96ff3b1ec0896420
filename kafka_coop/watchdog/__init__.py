"""Crashes noticed at once: a process that outlives the member, and says LeaveGroup for it.

A coordinator waits out ``session.timeout.ms`` before it believes that a silent member is dead,
for it may as well be slow. A process that can see the difference need not wait. With
``coop.watchdog=true`` every consumer has one: a child process that is told who the member is,
over a pipe, and that acts when the member's process has died.

guard.py         in the member's process: starts it, tells it, ends it
supervisor.py    in its own: waits for the end of its parent, then leaves in its name

**Never for one that is alive.** A stopped process (SIGSTOP, a debugger, a suspended machine)
keeps its end of the pipe open. The pipe's end alone proves nothing, either: a program that
becomes a daemon may close every descriptor it did not open, and `exec` closes this one. Only when
the child has another parent than the one that started it, the member's process is dead.

**What it can't see.** In a container, the death of process 1 takes all others with it, and an init
that ends with the service (tini) does no better: docs/LEAVING.md says what does. Nor does it
survive the machine, or a SIGKILL for the whole control group. The session timeout is there for
these.
"""
