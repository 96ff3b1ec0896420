"""Packages whose names are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def imported_on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``. It keeps what it has found.

    Type checkers take any name for one of a package that has such a function, so hide it from them
    (``if not TYPE_CHECKING``), and import the names there.

    Args:
        package: Its ``__name__``.
        homes: The module of each name.
    """

    def found(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
