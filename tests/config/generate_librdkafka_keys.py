"""Asks the installed librdkafka for its properties and writes them down as Python.

python tests/config/generate_librdkafka_keys.py > kafka_coop/config/librdkafka_keys.py
ruff format kafka_coop/config/librdkafka_keys.py
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafka_coop.config.properties import Kind, Property, Role

_ROW = re.compile(
    r"(?P<name>\S+) +\|  (?P<role>[CP*])  \| (?P<range>[^|]*?) *\| +(?P<default>.*?) *"
    r"\| (?:low|medium|high) +\| (?P<text>.*)<br>\*Type: (?P<kind>.*)\*"
)
_LIMITS = re.compile(r"(-?\d+) \.\. (-?\d+)")
_ALIAS = re.compile(r"(?:\*\*DEPRECATED\*\* )?Alias for `([^`]+)`:")

# The build's own features: not the same everywhere.
_VARYING_DEFAULTS = frozenset({"builtin.features"})

# Neither documented nor dumped, being unset; made for libraries on top of librdkafka to set.
_HIDDEN_UNSET = ("client.software.version",)

_CONF_OK = 0


def library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka brings along."""
    spec = importlib.util.find_spec("confluent_kafka")
    assert spec is not None
    assert spec.origin is not None
    packages = Path(spec.origin).parents[1]
    found = [
        *packages.glob("confluent_kafka.libs/librdkafka*"),
        *packages.glob("confluent_kafka/.dylibs/librdkafka*"),
    ]
    assert found, "confluent_kafka was not installed from a wheel with librdkafka inside"
    loaded = ctypes.CDLL(str(found[0]))
    for constructor in ("rd_kafka_conf_new", "rd_kafka_topic_conf_new"):
        getattr(loaded, constructor).restype = ctypes.c_void_p
    for dump in ("rd_kafka_conf_dump", "rd_kafka_topic_conf_dump"):
        getattr(loaded, dump).restype = ctypes.POINTER(ctypes.c_char_p)
    loaded.rd_kafka_version_str.restype = ctypes.c_char_p
    return loaded


def _documentation(lib: ctypes.CDLL) -> str:
    """What `rd_kafka_conf_properties_show` prints: CONFIGURATION.md's tables."""
    libc: Any = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        lib.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        return Path(file.name).read_text(encoding="utf-8")


def _dumped_names(lib: ctypes.CDLL, prefix: str) -> list[str]:
    """Names that a dump holds: the hidden ones too, but no aliases and nothing unset."""
    count = ctypes.c_size_t()
    conf = ctypes.c_void_p(getattr(lib, f"{prefix}_new")())
    pairs = getattr(lib, f"{prefix}_dump")(conf, ctypes.byref(count))
    names = [pairs[i].decode() for i in range(0, count.value, 2)]
    lib.rd_kafka_conf_dump_free(pairs, count)
    getattr(lib, f"{prefix}_destroy")(conf)
    return [*names, *(n for n in _HIDDEN_UNSET if _exists(lib, prefix, n))]


def _exists(lib: ctypes.CDLL, prefix: str, name: str) -> bool:
    conf = ctypes.c_void_p(getattr(lib, f"{prefix}_new")())
    setter = getattr(lib, f"{prefix}_set")
    result: int = setter(conf, name.encode(), b"1", None, ctypes.c_size_t(0))
    getattr(lib, f"{prefix}_destroy")(conf)
    return result == _CONF_OK


def _properties(table: str) -> tuple[Property, ...]:
    return tuple(
        _property(row) for line in table.splitlines() if (row := _ROW.fullmatch(line.strip()))
    )


def _property(row: re.Match[str]) -> Property:
    limits = _LIMITS.fullmatch(row["range"])
    alias = _ALIAS.match(row["text"])
    name = row["name"]
    return Property(
        name,
        Role(row["role"]),
        Kind(row["kind"]),
        default=None if name in _VARYING_DEFAULTS else row["default"] or None,
        limits=(int(limits[1]), int(limits[2])) if limits else None,
        choices=() if limits or not row["range"] else tuple(row["range"].split(", ")),
        alias_of=alias[1] if alias else None,
    )


def read_library() -> tuple[tuple[Property, ...], tuple[Property, ...]]:
    """The library's global and topic properties, in its order; hidden ones at the end."""
    lib = library()
    tables = _documentation(lib).split("## Topic configuration properties")
    scopes = []
    for table, prefix in zip(tables, ("rd_kafka_conf", "rd_kafka_topic_conf"), strict=True):
        shown = _properties(table)
        known = {p.name for p in shown}
        hidden = (n for n in _dumped_names(lib, prefix) if n not in known)
        scopes.append((*shown, *(Property(n, Role.BOTH, Kind.HIDDEN) for n in hidden)))
    return scopes[0], scopes[1]


def _written(prop: Property) -> str:
    optional = {
        "limits": prop.limits,
        "choices": prop.choices or None,
        "alias_of": prop.alias_of,
    }
    parts = [repr(prop.name), f"Role.{prop.role.name}", f"Kind.{prop.kind.name}"]
    parts += [repr(prop.default)] if prop.default is not None else []
    parts += [f"{k}={v!r}" for k, v in optional.items() if v is not None]
    return f"Property({', '.join(parts)}),"


def main() -> None:
    """Writes the module to stdout."""
    version = library().rd_kafka_version_str().decode()
    global_scope, topic_scope = read_library()
    lines = [
        '"""librdkafka\'s configuration properties, as the library itself lists them.',
        "",
        "Generated by tests/config/generate_librdkafka_keys.py; not to be edited.",
        '"""',
        "",
        "# ruff: noqa: E501  # librdkafka's own words are long",
        "",
        "from __future__ import annotations",
        "",
        "from kafka_coop.config.properties import Kind, Property, Role",
        "",
        f"VERSION = {version!r}",
        "",
        "GLOBAL: tuple[Property, ...] = (",
        *map(_written, global_scope),
        ")",
        "",
        "TOPIC: tuple[Property, ...] = (",
        *map(_written, topic_scope),
        ")",
        "",
    ]
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
