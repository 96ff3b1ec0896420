"""Publishes orders at a steady rate, for the services to have something to do.

BOOTSTRAP_SERVERS=localhost:9092 python examples/orders.py
"""

from __future__ import annotations

import os
import random
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_coop import Shutdown


def main() -> None:
    """Creates the topic where it is missing, and publishes until SIGTERM or Ctrl-C."""
    servers: dict[str, str | int | float | bool] = {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]
    }
    topic = os.environ.get("TOPIC", "orders")
    pause = 1 / float(os.environ.get("ORDERS_PER_SECOND", "200"))
    wanted = NewTopic(topic, num_partitions=int(os.environ.get("PARTITIONS", "12")))
    created = AdminClient(servers).create_topics([wanted])
    try:
        created[topic].result()
    except KafkaException as error:
        print(f"not created: {error}")  # it exists, most likely
    producer = Producer(servers)
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
