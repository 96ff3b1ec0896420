"""The group member as a sans-IO state machine."""
