"""The closed forms against PyTorch's own counter, which looks at what runs and shares no code with them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.exports.architectures import ARCHITECTURES


@pytest.mark.parametrize("size", ["full", "small"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_closed_form_is_what_pytorch_counts(architecture, size):
    subject = ARCHITECTURES[architecture].build(ARCHITECTURES[architecture].sizes[size])
    subject.module.eval().model.set_attn_implementation("eager")  # the counter does not know the fused one of the CPU
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        subject.module(*subject.inputs.values())
    example = {axes[axis]: subject.inputs[name].shape[axis] for name, axes in subject.axes.items() for axis in axes}
    assert counter.get_total_flops() == 2 * ARCHITECTURES[architecture].macs(size, example)
