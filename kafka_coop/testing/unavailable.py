"""Why a real broker cannot be had on this machine."""


class LocalKafkaUnavailableError(RuntimeError):
    """Java or Kafka's jars are not to be had here. The text says what was tried, and a remedy."""
