"""Bytes to values and back: the wire, and the only importer of kio."""
