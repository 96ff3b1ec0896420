"""Examples: each folder is one, and runs as a module."""
