"""Which machine a measurement belongs to."""

import os
from pathlib import Path

import pytest

from common.process.host_identity import cpu_model, host_identity


def test_host():
    assert host_identity()["cpu_count"] == os.cpu_count()
    assert host_identity()["cpu_model"] == cpu_model() != ""


def test_a_processor_without_a_name(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "processor : 0\n")
    assert cpu_model.__wrapped__()


def arm(part, implementer="0x41"):
    return f"processor : 0\nCPU implementer : {implementer}\nCPU part : {part}\n\nprocessor : 1\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (arm("0xd03"), "Arm Cortex-A53"),
        (arm("0xd0c"), "Arm Neoverse-N1"),
        (arm("0xac3", "0xc0"), "Arm implementer 0xc0, part 0xac3"),  # Ampere's own core
        (arm("0xd08") + "\nModel : Raspberry Pi 4 Model B Rev 1.4\n", "Raspberry Pi 4 Model B Rev 1.4"),
        ("model name : ARMv8 Processor rev 4 (v8l)\n" + arm("0xd03"), "Arm Cortex-A53"),
        ("model name : Intel(R) Xeon(R) Processor\nmodel : 85\n", "Intel(R) Xeon(R) Processor"),
    ],
)
def test_an_arm_is_named_by_its_board_or_its_core(monkeypatch, text, name):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert cpu_model.__wrapped__() == name


def test_a_system_without_cpuinfo(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert cpu_model.__wrapped__()
