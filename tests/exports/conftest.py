"""Each export is made once and thrown away at the end: the full-size ones take hundreds of megabytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """The path of an architecture's export, by name, size and exporter."""
    folders = []

    @cache
    def make(architecture: str, size: str, exporter: str) -> Path:
        from tests.exports.exporters import export

        folders.append(tmp_path_factory.mktemp(f"{architecture}-{size}-{exporter}"))
        return export(architecture, size, exporter, folders[-1])

    yield make
    for folder in folders:
        shutil.rmtree(folder)
