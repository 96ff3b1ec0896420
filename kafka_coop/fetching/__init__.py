"""Fetching: the only importer of `confluent_kafka.Consumer`.

`fetcher` holds one librdkafka consumer and drives it by absolute offsets; `buffer`, what was
taken from it and not yet delivered; `ledger`, up to where records were delivered, should an
exception swallow some; `native`, the way to confluent-kafka's values and back; `messages`,
errors of a partition as messages; `group_metadata`, a member's identity for transactional
producers.
"""
