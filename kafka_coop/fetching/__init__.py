"""librdkafka as a fetcher of records."""
