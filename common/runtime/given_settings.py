"""Settings of a session as a user gives them, in words, and the changes for a second one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.errors import UnusableValueError
from common.names import quoted
from common.runtime.provider_table import resolve_provider
from common.runtime.session import OPTIMIZATIONS, SessionSettings
from common.runtime.threads import usable_threads

GIVEN = ("threads", "provider", "optimization")


def given_settings(values: Mapping[str, Any], changes: Mapping[str, str], quantity: str) -> SessionSettings:
    """Return the settings of a session.

    Args:
        values: those of ``GIVEN``; no threads are all that this process may use.
        changes: texts that replace some of them.
        quantity: name of the setting that the changes come from.

    Raises:
        UnusableValueError: a setting is unknown, or does not take its value.
    """
    if unknown := [name for name in changes if name not in GIVEN]:
        raise UnusableValueError(quantity, f"{quoted(unknown[0])} is no setting", f"it takes {', '.join(GIVEN)}")
    chosen = {**{name: values[name] for name in GIVEN}, **changes}
    if chosen["optimization"] not in OPTIMIZATIONS:
        problem = f"{quoted(chosen['optimization'])} is no level"
        asked = quantity if "optimization" in changes else "optimization"
        raise UnusableValueError(asked, problem, f"it takes {', '.join(OPTIMIZATIONS)}")
    threads = usable_threads(_thread_count(chosen["threads"], quantity))
    return SessionSettings(threads, resolve_provider(chosen["provider"]), chosen["optimization"])


def _thread_count(given: Any, quantity: str) -> int | None:
    """Return a number of threads; a text must be a whole number above zero."""
    if given is None or isinstance(given, int):
        return given
    if not (given.isascii() and given.isdigit() and int(given)):
        raise UnusableValueError(quantity, f"threads={given} is no whole number above 0", "give one")
    return int(given)
