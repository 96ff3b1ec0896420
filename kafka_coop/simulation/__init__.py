"""A consumer group in a box: brokers and members in one process, in virtual time."""
