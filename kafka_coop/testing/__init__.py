"""Brokers and checks for tests: ours and yours."""
