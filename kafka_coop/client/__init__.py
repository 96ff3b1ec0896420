"""The user's side of a membership, below the façade: one module, one subject.

ownership.py     what the user was given, whether it is fetched, and from where
handover.py      the membership's steps: callbacks, and the order around them
commits.py       commits and committed offsets
positions.py     where the user reads: position, seek, pause, resume
by_hand.py       partitions that the user assigned without a group's help
polling.py       the loop inside poll and consume
closing.py       out of the group, and the end of everything
memberships.py   which membership a configuration asks for
subscribing.py   what the user may ask for: topics, regular expressions, strategies
observer.py      where the membership's news goes: metrics and the log
"""
