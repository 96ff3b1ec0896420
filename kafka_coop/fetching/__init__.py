"""Fetching: the only importer of `confluent_kafka.Consumer`.

`fetcher` holds one librdkafka consumer and drives it by absolute offsets. Its parts: `buffer`,
what was taken from librdkafka and not yet delivered; `batches`, how much to take; `newcomers`,
whose backlog keeps no other partition waiting; `ledger`, up to where records were delivered, should
an exception swallow some; `callbacks`, when the user's callbacks run; `native`, the way to
confluent-kafka's values and back.

Beside it: `messages`, errors of a partition as messages; `group_metadata`, a member's identity
for transactional producers.
"""
