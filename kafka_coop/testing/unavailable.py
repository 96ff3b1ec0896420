"""Why a real broker cannot be had on this machine."""


class KafkaUnavailableError(RuntimeError):
    """What a real broker needs is not to be had. The text says what was tried, and a remedy."""


class LocalKafkaUnavailableError(KafkaUnavailableError):
    """Java or Kafka's jars are not to be had here."""
