"""Consume, transform, produce: each record's result exactly once.

    python examples/exactly_once.py

Results and the offsets they came from are one transaction. If the member loses partitions, its
generation is out of date, the transaction fails and is rolled back, and whoever owns the
partitions now does the work. Readers of the results need ``isolation.level=read_committed``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import KafkaException, Message, Producer
from playground import Config, fill, playground

from kafka_coop import CoopConsumer

PATIENCE = 30.0


def run(
    config: Config,
    source: str,
    sink: str,
    transform: Callable[[Message], bytes],
    stopping: Callable[[], bool],
) -> None:
    """Transforms records until told to stop.

    Raises:
        KafkaException: Another producer has taken over this one's ``transactional.id``, or the
            transaction can't be ended: start anew.
    """
    producer = producer_of(config)
    consumer = CoopConsumer(
        {
            **config,
            "enable.auto.commit": False,  # offsets are committed with the results
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    with consumer:
        while not stopping():
            messages = [m for m in consumer.consume(500, timeout=0.5) if not m.error()]
            results = [(m.key(), transform(m)) for m in messages]
            if results and not transact(producer, consumer, sink, results):
                producer = producer_of(config)
                rewind(consumer)


def producer_of(config: Config) -> Producer:
    """A producer that fences all before it with its ``transactional.id``.

    Anew after each transaction that failed, too: offsets of it that are late on their way to the
    coordinator would be taken for part of the same producer's next, whose commit would pass over
    records that were rolled back. (KIP-890 closes this for clients that speak its protocol;
    librdkafka, as of 2.16, does not.)
    """
    producer = Producer(
        {
            "bootstrap.servers": config["bootstrap.servers"],
            "transactional.id": f"{config['group.id']}-{config['client.id']}",
        }
    )
    producer.init_transactions(PATIENCE)
    return producer


def transact(
    producer: Producer, consumer: CoopConsumer, sink: str, results: list[tuple[bytes | None, bytes]]
) -> bool:
    """One transaction; False where it was rolled back, and its producer is not to be used again.

    Callbacks run inside `consume` alone, so no partition leaves during it.
    """
    positions = [p for p in consumer.position(consumer.assignment()) if p.offset >= 0]
    producer.begin_transaction()
    try:
        for key, value in results:
            producer.produce(sink, value, key)
        producer.send_offsets_to_transaction(
            positions, consumer.consumer_group_metadata(), PATIENCE
        )
        producer.commit_transaction(PATIENCE)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction(PATIENCE)
        return False
    return True


def rewind(consumer: CoopConsumer) -> None:
    """Back to what is committed: what was rolled back is to be read again."""
    for committed in consumer.committed(consumer.assignment(), timeout=PATIENCE):
        if committed.error is not None:  # not known, which is not the same as none
            raise KafkaException(committed.error)
        if committed.offset < 0:
            committed.offset = consumer.get_watermark_offsets(committed, timeout=PATIENCE)[0]
        consumer.seek(committed)


def main() -> None:
    """Doubles a thousand numbers."""
    done = threading.Event()
    seen: list[int] = []

    def double(message: Message) -> bytes:
        seen.append(int(message.value() or b"0"))
        if len(seen) == 1000:  # noqa: PLR2004  # as produced
            done.set()
        return str(2 * seen[-1]).encode()

    with playground(numbers=4, doubles=4) as config:
        fill(config, "numbers", range(4), records=250)
        group = {**config, "group.id": "doubler", "client.id": "doubler-1"}
        run(group, "numbers", "doubles", double, done.is_set)
    print(f"{len(seen)} numbers doubled, their sum {2 * sum(seen)}")


if __name__ == "__main__":
    main()
