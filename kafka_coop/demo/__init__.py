"""`python -m kafka_coop.demo`: a living group on real data, and the proof that nothing is lost.

One process is the broker, the publisher and the judge; each member of the group is a process
of its own, which can be killed.

    publisher ─► topic "flights" ─► member 1…4 ─► a journal each ─► check: every offset there?
                                        └─► reports (JSON lines) ─► screen

`flights` reads the data, `delays` adds it up, `journal` is what members leave behind, `check`
judges it. `reports` is what a member tells while it runs; `group` is what follows from it and
`narration` says it in words. `scenario` is the play, `publisher` and `crew` are its actors,
`screen` and `results` show it.
"""
