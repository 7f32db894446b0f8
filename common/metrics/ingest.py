"""The messages that a program posts to a live dashboard: declared once, for sender and receiver.

docs/DASHBOARD.md describes the messages. The receiver checks them; a sender keeps within their limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

PATH = "/api/ingest"
TOKEN_FILE = "dashboard.token"  # in the dashboard's folder
MOST_NAME = 200  # characters
MOST_DURATIONS, MOST_FAILED = 10_000, 1_000_000
MOST_FIGURES, MOST_NODES = 64, 1000


class NodeShareMessage(TypedDict):
    """A node's part of the time of a run: its name, its operator, its share of the time of all nodes."""

    node: str
    op_type: str
    share: float


class RunsMessage(TypedDict, total=False):
    """Runs since the last message, and current gauges; every field may be missing.

    ``model`` is what the page shows as the name, ``durations_us`` the latency of each run, ``failed_run_count`` how
    many runs failed. ``figures`` are known figures by name; ``nodes`` replace those of earlier messages.
    """

    model: str
    durations_us: Sequence[float]
    failed_run_count: int
    figures: Mapping[str, float]
    nodes: Sequence[NodeShareMessage]
