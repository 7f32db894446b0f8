"""Cycles of the overlay engine's units, by hand and by a loop nest that runs the tiles."""

from __future__ import annotations

from itertools import product

import pytest

from common.fpga.kernels.overlay.cycles import (
    OverlayShape,
    array_cycles,
    pass_cycles,
    unsupported,
    weight_elements,
    window_cycles,
)
from common.workload.layers import Convolution, Layer, Matmul, Pointwise, Pooling, Rowwise

B4096 = OverlayShape(8, 16, 16, 4, 4, 8, 262144)
ODD = OverlayShape(3, 5, 7, 2, 2, 8, 1024)


def convolution(
    channels: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int],
    *,
    groups: int = 1,
    transposed: bool = False,
) -> Convolution:
    return Convolution(
        1, channels[0], *size, channels[1], *size, *kernel, groups=groups, is_transposed=transposed
    )  # fmt: skip


def test_prime_convolution_by_hand() -> None:
    """17 to 23 channels, 11 rows of 13 pixels, a window of 3 by 5."""
    layer = convolution((17, 23), (11, 13), (3, 5))
    rows, lanes, outputs = 2, 5 * 2, 2  # ceil(11/8); 5 columns of the window x ceil(17/16); ceil(23/16)
    assert array_cycles(layer, B4096) == rows * 13 * lanes * 3 * outputs == 1560


def test_first_layers_pack_their_three_channels() -> None:
    """ResNet: 7 x 3 = 21 operands of a window's row need 2 lanes of 16, not 7; VGG: 9 need 1, not 3."""
    resnet = Convolution(1, 3, 224, 224, 64, 112, 112, 7, 7, 2, 2)
    assert array_cycles(resnet, B4096) == (112 // 8) * 112 * 2 * 7 * (64 // 16)
    vgg = Convolution(1, 3, 224, 224, 64, 224, 224, 3, 3)
    assert array_cycles(vgg, B4096) == (224 // 8) * 224 * 1 * 3 * (64 // 16)


def test_fully_connected_layer_is_one_pixel() -> None:
    assert array_cycles(Matmul(1, 25088, 4096), B4096) == (25088 // 16) * (4096 // 16)
    assert array_cycles(Matmul(19, 23, 29, batch=3), ODD) == 3 * 7 * 5 * 5


def counted(layer: Convolution, shape: OverlayShape) -> tuple[int, int]:
    """Run the tiles of an ungrouped convolution of many channels: cycles, and the products that they make."""
    cycles = products = 0
    tiles = product(
        range(0, layer.out_height, shape.pixels),
        range(layer.out_width),
        range(layer.kernel_height * layer.kernel_width),
        range(0, layer.in_channels, shape.in_channels),
        range(0, layer.out_channels, shape.out_channels),
    )
    for row, _, _, source, result in tiles:
        cycles += 1
        products += (
            min(shape.pixels, layer.out_height - row)
            * min(shape.in_channels, layer.in_channels - source)
            * min(shape.out_channels, layer.out_channels - result)
        )
    return cycles, products


@pytest.mark.parametrize("shape", [B4096, ODD], ids=["8x16x16", "3x5x7"])
@pytest.mark.parametrize(
    "layer",
    [
        convolution((17, 23), (11, 13), (3, 5)),
        convolution((37, 5), (7, 7), (1, 1)),
        convolution((64, 48), (9, 3), (2, 7)),
    ],
    ids=["17-23", "37-5", "64-48"],
)
def test_tiles_run_in_so_many_cycles_and_make_every_product_once(layer: Convolution, shape: OverlayShape) -> None:
    cycles, products = counted(layer, shape)
    assert array_cycles(layer, shape) == cycles
    assert products == layer.macs
    assert cycles * shape.macs_per_cycle >= layer.macs


def test_groups_run_one_after_the_other() -> None:
    whole = convolution((34, 46), (11, 13), (3, 5), groups=2)
    half = convolution((17, 23), (11, 13), (3, 5))
    assert array_cycles(whole, B4096) == 2 * array_cycles(half, B4096)


def test_transposed_convolution_takes_its_input_pixels() -> None:
    layer = Convolution(1, 32, 5, 7, 16, 10, 14, 4, 4, 2, 2, is_transposed=True)
    assert array_cycles(layer, B4096) == 1 * 7 * (4 * 2) * 4 * 1
    assert array_cycles(layer, B4096) * B4096.macs_per_cycle >= layer.macs


def test_depthwise_goes_to_the_window_unit() -> None:
    layer = convolution((67, 67), (13, 11), (3, 3), groups=67)
    assert array_cycles(layer, B4096) == 0
    assert window_cycles(layer, B4096) == 4 * 11 * 5 * 9  # ceil(13/4) rows, ceil(67/16) channels
    assert unsupported(layer, OverlayShape(8, 16, 16, 0, 4, 8, 1)) == "a depthwise convolution"


def test_pooling_and_addition() -> None:
    assert window_cycles(Pooling(1, 67, 26, 22, 13, 11, 3, 3), B4096) == 4 * 11 * 5 * 9
    assert window_cycles(Pointwise("Add", 1009, 2), B4096) == 16  # ceil(1009 / 64)
    assert window_cycles(Pointwise("Add", 1009, 1), B4096) == 0  # a bias is folded
    assert window_cycles(Pointwise("Relu", 1009, 1), B4096) == 0
    assert pass_cycles(Pointwise("Relu", 1009, 1), B4096) == 16
    assert pass_cycles(Pointwise("Concat", 1009, 2), B4096) == 0
    assert window_cycles(Pointwise("Resize", 1009, 1), B4096) == 16


def test_a_mean_over_a_map_is_an_average_pooling() -> None:
    pooled = window_cycles(Pooling(1, 67, 7, 7, 1, 1, 7, 7), B4096)
    assert window_cycles(Rowwise("ReduceMean", 67, 49), B4096) == pooled == 5 * 49
    assert unsupported(Rowwise("ReduceMean", 67, 49), B4096) == ""
    assert unsupported(Rowwise("ReduceMean", 67, 768), B4096)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (Matmul(7, 7, 7, has_weight=False), "a product of two tensors that change"),
        (Rowwise("Softmax", 1, 1000), "Softmax, which has no unit"),
        (Pointwise("Sigmoid", 100), "Sigmoid, which has no unit"),
        (Pooling(1, 1000, 14, 14, 1, 1, 14, 14), "a pooling over 14 pixels"),
        (Pooling(1, 1000, 8, 8, 1, 1, 8, 8), ""),
        (Pointwise("Add", 100, 2), ""),
    ],
)
def test_what_has_no_unit(layer: Layer, reason: str) -> None:
    assert unsupported(layer, B4096) == reason


def test_weights() -> None:
    assert weight_elements(convolution((17, 23), (11, 13), (3, 5))) == 17 * 23 * 15
    assert weight_elements(convolution((67, 67), (13, 11), (3, 3), groups=67)) == 67 * 9
    assert weight_elements(Matmul(1, 25088, 4096)) == 25088 * 4096
    assert weight_elements(Matmul(7, 7, 7, has_weight=False)) == 0
    assert weight_elements(Pooling(1, 67, 26, 22, 13, 11, 3, 3)) == 0
