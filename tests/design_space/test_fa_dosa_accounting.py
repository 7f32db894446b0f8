"""FA-DOSA's own accounting on ResNet-18, 224×224, fp32, with the constants of its config.yaml and 28 KiB."""

from __future__ import annotations

from dataclasses import astuple
from functools import cache

import pytest
from pytest import approx

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import SingleBuffer, single_buffer
from common.design_space.fa_dosa.accounting import (
    ACTIVATED,
    ADDED,
    FOLDED,
    FaDosaKernel,
    fa_dosa_cost,
    fa_dosa_kernels,
)
from common.messages.errors import UnusableValueError
from models.__main__ import BUILDERS
from tests.support.paths import CONFIGS
from tests.support.tables.source import source_rows

BUFFER = single_buffer(load_hardware("fa-dosa", CONFIGS / "hardware"))
GIVEN = SingleBuffer(28 * 1024, 100, 1000, 1000, 2.5, 0.25 + 0.0001 * 28)  # as its config.yaml says
KNOWN = 0.005  # the published figures have three digits


def test_the_file_has_the_constants_of_the_seed():
    *figures, names = astuple(BUFFER)
    *given, given_names = astuple(GIVEN)
    assert (figures, names) == (approx(given), given_names)


def test_an_accelerator_of_several_memories_is_refused():
    with pytest.raises(UnusableValueError, match="gemmini has the memories"):
        single_buffer(load_hardware("gemmini", CONFIGS / "hardware"))


@cache
def resnet18():
    return source_rows(BUILDERS["resnet18"](has_weights=False), N=1)


def kernels(fused):
    return fa_dosa_kernels(*resnet18(), fused)


def of_types(found, *types):
    _, graph = resnet18()
    return [kernel for kernel in found if graph.nodes[kernel.nodes[0]].op_type in types]


@pytest.mark.parametrize(
    ("fused", "megabytes", "edp"), [(FOLDED, 97.0, 5.76e14), (ACTIVATED, 84.6, None), (ADDED, 72.5, 3.82e14)]
)
def test_the_traffic_and_the_product_of_three_fusions(fused, megabytes, edp):
    cost = fa_dosa_cost(kernels(fused), BUFFER)
    assert cost.moved_bytes / 1e6 == approx(megabytes, rel=KNOWN)
    assert edp is None or cost.edp == approx(edp, rel=KNOWN)


def test_the_published_product_lies_between_two_subsets_of_the_kernels():
    found = kernels(ACTIVATED)
    contractions = fa_dosa_cost(of_types(found, "Conv", "Gemm"), BUFFER)
    with_pool = fa_dosa_cost(of_types(found, "Conv", "Gemm", "MaxPool"), BUFFER)
    assert contractions.edp == approx(3.31e14, rel=KNOWN)
    assert with_pool.edp == approx(3.60e14, rel=KNOWN)
    assert contractions.edp < 3.49e14 < with_pool.edp


def test_every_node_that_moves_something_is_in_one_kernel():
    _, graph = resnet18()
    for fused in ((), FOLDED, ACTIVATED, ADDED):
        nodes = [name for kernel in kernels(fused) for name in kernel.nodes]
        assert sorted(nodes) == sorted(name for name in graph.nodes if not graph.is_free(name))
        assert sum(kernel.macs for kernel in kernels(fused)) == 1_814_073_344


def test_a_folded_normalization_leaves_one_bias():
    (plain,) = (kernel for kernel in kernels(()) if kernel.nodes == ("/conv1/Conv",))
    (folded,) = (kernel for kernel in kernels(FOLDED) if kernel.nodes[0] == "/conv1/Conv")
    assert folded.nodes == ("/conv1/Conv", "/bn1/BatchNormalization")
    assert folded.moved_bytes == plain.moved_bytes + 4 * 64


def test_an_addition_goes_to_the_last_of_the_two_convolutions():
    of_node = {name: kernel for kernel in kernels(ADDED) for name in kernel.nodes}
    last = of_node["/layer2/layer2.0/Add"]
    assert last.nodes[0] == "/layer2/layer2.0/downsample/downsample.0/Conv"
    assert last.added_bytes == 4 * 128 * 28 * 28  # the result of the other convolution


def test_cost_written_out():
    buffer = SingleBuffer(1024, 3, 1000, 7, 2.5, 0.5, 0.25)
    cost = fa_dosa_cost([FaDosaKernel(("a",), 700, 60, 9), FaDosaKernel(("b",), 0, 30, 0)], buffer)
    # the first computes for 100 cycles while it moves 51 bytes in 17, then reads 9 bytes in 3; the second moves for 10
    assert cost.cycles == approx(100 + 3 + 10)
    assert cost.moved_bytes == 90
    assert cost.energy_pj == approx(90 * 3.0 + 700 * 0.25)
