"""`kafka-coop`, the command line: what a group is, what it does, and what it would do.

    connection ─► reading ─► group (a value) ─► forecast, timeline ─► describing, watching

`connection` makes an administration client and says why there is none; `reading` asks it about
one group; `group` is the answer, decoded; `userdata` puts other members' bytes into words;
`forecast` runs the leader's step on it; `timeline` compares two looks. `words` holds what all
screens write alike. `app` declares the commands; `entry` is the script, which needs the extra
``cli``. Exit statuses are in `exits`.
"""
