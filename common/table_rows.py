"""The types of rows and documents as Python imports them: dictionaries. mypy reads ``table_rows.pyi`` instead.

To build all types of that file at run time would take 20 ms of each start.
"""

from __future__ import annotations


def __getattr__(name: str) -> type[dict[str, object]]:
    if name.startswith("_"):
        raise AttributeError(name)
    return dict
