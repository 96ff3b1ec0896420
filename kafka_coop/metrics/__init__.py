"""Prometheus metrics and the log of rebalances."""
