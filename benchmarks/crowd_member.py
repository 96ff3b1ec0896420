"""Many members in one process, polled by turns: ``python -m benchmarks.crowd_member JOB``.

Answers each line of its input with a line of JSON: what its members own, and what it is made of.
Closes them all when its input ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.process_size import ProcessSize
from kafka_coop.consumer import CoopConsumer


def report(consumers: list[CoopConsumer], seen: list[tuple[Any, ...]]) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "owned": [[(p.topic, p.partition) for p in c.assignment()] for c in consumers],
        "generations": [c.health().generation for c in consumers],
        "seen": seen,
        **asdict(ProcessSize.now()),
    }


def main() -> None:
    job = json.loads(sys.argv[1])
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line)
        asked.put("")

    threading.Thread(target=listen, daemon=True).start()
    consumers = []
    for number in range(job["members"]):
        config = {**job["config"], "client.id": f"{os.getpid()}-{number}"}
        consumers.append(CoopConsumer(config, registry=CollectorRegistry()))
        consumers[-1].subscribe(job["topics"])
    seen: list[tuple[Any, ...]] = []
    going_on = True
    while going_on:
        for consumer in consumers:
            message = consumer.poll(0)
            if message is not None and message.error() is None:
                seen.append((message.topic(), message.partition(), message.offset()))
        while not asked.empty():
            if not (going_on := bool(asked.get())):
                break
            print(json.dumps(report(consumers, seen)), flush=True)
        time.sleep(0.01)
    with ThreadPoolExecutor(len(consumers)) as pool:  # each waits for an answer to its LeaveGroup
        list(pool.map(CoopConsumer.close, consumers))


if __name__ == "__main__":
    main()
