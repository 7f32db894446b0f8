"""Which machine a measurement belongs to."""

import os
from pathlib import Path

from common.process.host_identity import cpu_model, host_identity


def test_host():
    assert host_identity()["cpu_count"] == os.cpu_count()
    assert host_identity()["cpu_model"] == cpu_model() != ""


def test_a_processor_without_a_name(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor : 0\n")
    assert cpu_model.__wrapped__()


def test_a_system_without_cpuinfo(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert cpu_model.__wrapped__()
