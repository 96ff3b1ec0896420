"""Other clients' leaders, each in a process of its own, behind one protocol.

`benchmarks.leader` runs them side by side with ours; the tests in ``tests/oracle`` take Java's
as what is right.

| module | leader |
|---|---|
| `java` | Apache Kafka's own classes, from Maven's repository |
| `franz` | franz-go's balancer, from the Go proxy |
| `ours` | `kafka_coop.leader` |
"""
