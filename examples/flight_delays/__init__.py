"""Flights joined with the weather they left in: a stream-stream join shared by several queries."""
