"""A membership behind a protocol: what runs the state machine."""
