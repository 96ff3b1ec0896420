"""Partition assignment strategies: pure functions of a snapshot."""
