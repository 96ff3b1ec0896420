"""Positions, commits and resets: pure decisions about offsets."""
