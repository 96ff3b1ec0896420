"""Prometheus metrics and the log of rebalances.

`member` is what a consumer calls; `families` declares what is counted as it happens, `scrape`
what is read when Prometheus asks; `collector` ties both to a registry; `log` writes one event
a rebalance. ``docs/METRICS.md`` says what each metric means.
"""
