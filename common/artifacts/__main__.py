"""``python -m common.artifacts > docs/ARTIFACTS.md``: the documentation of every artifact, from its declaration."""

from __future__ import annotations

from common.artifacts.describe import describe_all

if __name__ == "__main__":
    print(describe_all(), end="")
