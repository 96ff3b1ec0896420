"""librdkafka's mock cluster, reached by ctypes in the library that confluent-kafka uses.

confluent-kafka does not export the mock cluster (`rdkafka_mock.h`), yet its wheels for Linux
and macOS ship every symbol of it. The extension module is asked first: the dynamic linker
looks a symbol up in a library and in all it depends on, so this finds the very instance
confluent-kafka runs on, bundled or the system's, wherever the installer put it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
_INT16 = ctypes.c_int16
_INT32 = ctypes.c_int32
_INT64 = ctypes.c_int64
_SIZE = ctypes.c_size_t
_TEXT = ctypes.c_char_p

PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "rd_kafka_conf_new": (_POINTER, ()),
    "rd_kafka_conf_set": (_INT, (_POINTER, _TEXT, _TEXT, _TEXT, _SIZE)),
    "rd_kafka_conf_destroy": (None, (_POINTER,)),
    "rd_kafka_new": (_POINTER, (_INT, _POINTER, _TEXT, _SIZE)),
    "rd_kafka_destroy": (None, (_POINTER,)),
    "rd_kafka_thread_cnt": (_INT, ()),
    "rd_kafka_err2str": (_TEXT, (_INT,)),
    "rd_kafka_mock_cluster_new": (_POINTER, (_POINTER, _INT)),
    "rd_kafka_mock_cluster_destroy": (None, (_POINTER,)),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, (_POINTER,)),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, (_POINTER, _INT32)),
    "rd_kafka_mock_set_apiversion": (_INT, (_POINTER, _INT16, _INT16, _INT16)),
    "rd_kafka_mock_topic_create": (_INT, (_POINTER, _TEXT, _INT, _INT)),
    "rd_kafka_mock_topic_delete": (_INT, (_POINTER, _TEXT)),
    "rd_kafka_mock_topic_set_error": (None, (_POINTER, _TEXT, _INT)),
    "rd_kafka_mock_partition_delete_records": (_INT, (_POINTER, _TEXT, _INT32, _INT64)),
    "rd_kafka_mock_partition_set_leader": (_INT, (_POINTER, _TEXT, _INT32, _INT32)),
    "rd_kafka_mock_push_request_errors_array": (None, (_POINTER, _INT16, _SIZE, _POINTER)),
    # Variadic: only what is fixed is declared, as arm64 passes the rest differently.
    "rd_kafka_mock_broker_push_request_error_rtts": (_INT, (_POINTER, _INT32, _INT16, _SIZE)),
    "rd_kafka_mock_clear_request_errors": (None, (_POINTER, _INT16)),
    "rd_kafka_mock_broker_set_down": (_INT, (_POINTER, _INT32)),
    "rd_kafka_mock_broker_set_up": (_INT, (_POINTER, _INT32)),
    "rd_kafka_mock_broker_set_rtt": (_INT, (_POINTER, _INT32, _INT)),
    "rd_kafka_mock_broker_set_rack": (_INT, (_POINTER, _INT32, _TEXT)),
    "rd_kafka_mock_coordinator_set": (_INT, (_POINTER, _TEXT, _TEXT, _INT32)),
    "rd_kafka_mock_start_request_tracking": (None, (_POINTER,)),
    "rd_kafka_mock_clear_requests": (None, (_POINTER,)),
    "rd_kafka_mock_get_requests": (_POINTER, (_POINTER, ctypes.POINTER(_SIZE))),
    "rd_kafka_mock_request_destroy_array": (None, (_POINTER, _SIZE)),
    "rd_kafka_mock_request_id": (_INT32, (_POINTER,)),
    "rd_kafka_mock_request_api_key": (_INT16, (_POINTER,)),
    "rd_kafka_mock_request_timestamp": (_INT64, (_POINTER,)),
}
"""What `EmbeddedKafka` calls: the result's type and those of the arguments."""


class MockClusterUnavailableError(RuntimeError):
    """No librdkafka with a mock cluster is to be found; the text names the remedy."""


@functools.cache
def load() -> ctypes.CDLL:
    """Loads librdkafka and declares the prototypes of all that is called.

    Returns:
        The library, shared by every cluster of this process. Its functions may be called
        from any thread and release the interpreter's lock while they run.

    Raises:
        MockClusterUnavailableError: No library found has every symbol.
    """
    failures = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(f"{candidate}: {error}")
            continue
        missing = [name for name in PROTOTYPES if not hasattr(library, name)]
        if not missing:
            return _declare(library)
        failures.append(f"{candidate}: lacks {', '.join(missing)}")
    raise MockClusterUnavailableError(
        "The embedded broker is librdkafka's mock cluster, and no librdkafka with all of it was"
        " found. Install confluent-kafka from its wheel (`pip install --force-reinstall"
        " --only-binary confluent-kafka 'confluent-kafka>=2.16'`), or librdkafka 2.16 or later"
        f" system-wide, or use LocalKafka. Tried: {'; '.join(failures) or 'nothing'}"
    )


def _candidates() -> Iterator[str]:
    """Library files worth a try, the one confluent-kafka runs on first."""
    # Only the folder is asked for: importing the package is left to whoever uses it.
    spec = importlib.util.find_spec("confluent_kafka")
    for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
        for suffix in EXTENSION_SUFFIXES:
            yield from _files(folder, f"cimpl{suffix}")
        yield from _files(folder.parent / "confluent_kafka.libs", "librdkafka*.so*")
        yield from _files(folder / ".dylibs", "librdkafka*.dylib")
    system = ctypes.util.find_library("rdkafka")
    if system is not None:
        yield system


def _files(folder: Path, pattern: str) -> Iterator[str]:
    return map(str, sorted(folder.glob(pattern)))


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
