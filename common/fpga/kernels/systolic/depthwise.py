"""What a depthwise convolution takes beside an array: turning its maps.

Each channel is a product of its own. Its maps lie channel by channel, those of the layers around it pixel by pixel. So
each map is read and written once more.
"""

from __future__ import annotations

from common.workload.layers import Convolution


def turned_elements(layer: Convolution) -> tuple[int, int]:
    """Return the elements of the two maps that change their order."""
    read = layer.batch * layer.in_channels * layer.in_height * layer.in_width
    return read, layer.batch * layer.out_channels * layer.out_height * layer.out_width
