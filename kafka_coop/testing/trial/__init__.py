"""Groups of real processes, ours and other clients', that journal what they do; and their judge.

`Crew` starts members, each a process of its own: ours, confluent-kafka's, Java's, kafka-python's.
Each journals its callbacks and records to a file as they happen. `judge` reads all journals and
says whether a partition ever had two owners and whether a record was lost. `faults` puts a group
through random faults.
"""
