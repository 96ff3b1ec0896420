"""Publishes orders at a steady rate, for the services to have something to do.

BOOTSTRAP_SERVERS=localhost:9092 python examples/orders.py
"""

from __future__ import annotations

import os
import random
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_coop import Shutdown


def create(servers: str, topic: str, partitions: int) -> None:
    """Creates the topic, unless it exists.

    Raises:
        KafkaException: It can't be created. Publishing all the same would have the broker make
            it, with as many partitions as it likes: one.
    """
    # To be kept until then: the end of the client ends what it was asked for.
    admin = AdminClient({"bootstrap.servers": servers})
    created = admin.create_topics([NewTopic(topic, num_partitions=partitions)])
    try:
        created[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def main() -> None:
    """Creates the topic where it is missing, and publishes until SIGTERM or Ctrl-C."""
    servers = os.environ["BOOTSTRAP_SERVERS"]
    topic = os.environ.get("TOPIC", "orders")
    pause = 1 / float(os.environ.get("ORDERS_PER_SECOND", "200"))
    create(servers, topic, int(os.environ.get("PARTITIONS", "12")))
    producer = Producer({"bootstrap.servers": servers})
    number = 0
    with Shutdown() as shutdown:
        while not shutdown:
            customer = f"customer-{random.randrange(1000)}"
            producer.produce(topic, key=customer, value=f"order {number}")
            producer.poll(0)
            number += 1
            time.sleep(pause)
    producer.flush(10)


if __name__ == "__main__":
    main()
