"""MACs of the published networks that come with onnx, against the layer tables of their papers.

Sides of 224 × 224 images follow from ⌊(side + pads − kernel) / stride⌋ + 1, written out where a network cuts a border.
"""

from __future__ import annotations

from pathlib import Path

import onnx.backend.test
import pytest

from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import load_model

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"


def alexnet() -> int:
    """Krizhevsky et al. 2012, in two groups where the paper's two GPUs see their own half; sides 54, 26, 12."""
    convolutions = 54**2 * 96 * 3 * 11**2 + 26**2 * 256 * 48 * 5**2 + 12**2 * (384 * 256 + 384 * 192 + 256 * 192) * 3**2
    return convolutions + 256 * 6**2 * 4096 + 4096 * 4096 + 4096 * 1000


def zfnet() -> int:
    """Zeiler & Fergus 2013, the wide one (512 filters): 7×7 by 2 to 109, 5×5 by 2 to 25, three of 3×3 on 12."""
    convolutions = 109**2 * 96 * 3 * 7**2 + 25**2 * 256 * 96 * 5**2 + 12**2 * (512 * 256 + 2 * 512 * 512) * 3**2
    return convolutions + 512 * 6**2 * 4096 + 4096 * 1024 + 1024 * 1000


def vgg19() -> int:
    """Simonyan & Zisserman 2014, configuration E: 2, 2, 4, 4, 4 convolutions of 3×3 on halved sides."""
    macs, channels = 0, 3
    for side, width, layers in ((224, 64, 2), (112, 128, 2), (56, 256, 4), (28, 512, 4), (14, 512, 4)):
        for _ in range(layers):
            macs += side**2 * width * channels * 3**2
            channels = width
    return macs + 512 * 7**2 * 4096 + 4096 * 4096 + 4096 * 1000


def resnet50() -> int:
    """He et al. 2015, table 1, with the stride in the 3×3 and a projection at each stage's start."""
    macs, channels, before = 112**2 * 64 * 3 * 7**2, 64, 56
    for side, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        for block in range(blocks):
            macs += before**2 * channels * width + side**2 * (width * width * 3**2 + width * 4 * width)
            macs += side**2 * channels * 4 * width if block == 0 else 0
            channels, before = 4 * width, side
    return macs + 2048 * 1000


def densenet121() -> int:
    """Huang et al. 2016, growth 32: 1×1 to 128, 3×3 to 32 in each layer; transitions halve the channels."""
    macs, channels = 112**2 * 64 * 3 * 7**2, 64
    for side, layers in ((56, 6), (28, 12), (14, 24), (7, 16)):
        for _ in range(layers):
            macs += side**2 * (channels * 128 + 128 * 32 * 3**2)
            channels += 32
        if side > 7:
            macs += side**2 * channels * channels // 2
            channels //= 2
    return macs + channels * 1000


def squeezenet() -> int:
    """Iandola et al. 2016, version 1.1: squeeze s, expand 1×1 and 3×3 to e each; classes by a 1×1 on 13."""
    macs, channels = 111**2 * 64 * 3 * 3**2, 64
    fires = ((55, 16, 64), (55, 16, 64), (27, 32, 128), (27, 32, 128))
    fires += ((13, 48, 192), (13, 48, 192), (13, 64, 256), (13, 64, 256))
    for side, squeeze, expand in fires:
        macs += side**2 * (channels * squeeze + squeeze * expand * (1 + 3**2))
        channels = 2 * expand
    return macs + 13**2 * channels * 1000


def shufflenet() -> int:
    """Zhang et al. 2017, table 1, groups 4 and half the width: stages of 136, 272, 544 in 4, 8, 4 units.

    A unit of stride 2 leaves as many channels to its convolutions as its input does not bring, and its first
    convolution stands before the stride.
    """
    macs, channels, before = 112**2 * 24 * 3 * 3**2, 24, 56
    for side, width, units in ((28, 136, 4), (14, 272, 8), (7, 544, 4)):
        for unit in range(units):
            new = width - channels if unit == 0 else width
            macs += before**2 * channels * new // 4 + side**2 * (new * 3**2 + new * new // 4)
            before = side
            channels = width
    return macs + 544 * 1000


GOOGLENET = (  # Szegedy et al. 2014, table 1: side, #1×1, #3×3 reduce, #3×3, #5×5 reduce, #5×5, pool projection
    (27, 64, 96, 128, 16, 32, 32),
    (27, 128, 128, 192, 32, 96, 64),
    (13, 192, 96, 208, 16, 48, 64),
    (13, 160, 112, 224, 24, 64, 64),
    (13, 128, 128, 256, 24, 64, 64),
    (13, 112, 144, 288, 32, 64, 64),
    (13, 256, 160, 320, 32, 128, 128),
    (6, 256, 160, 320, 32, 128, 128),
    (6, 384, 192, 384, 48, 128, 128),
)


def inception_v1() -> int:
    """GoogLeNet; this file's poolings cut the border: 55, 27, 13, 6 for the paper's 56, 28, 14, 7."""
    macs, channels = 112**2 * 64 * 3 * 7**2 + 55**2 * (64 * 64 + 192 * 64 * 3**2), 192
    for side, one, to_three, three, to_five, five, pooled in GOOGLENET:
        macs += side**2 * (channels * (one + to_three + to_five + pooled) + to_three * three * 9 + to_five * five * 25)
        channels = one + three + five + pooled
    return macs + 1024 * 1000


INCEPTION_V2 = (  # Ioffe & Szegedy 2015, table of the appendix: side, 1×1, 3×3 (in, out), double 3×3 (in, out), pool
    (28, 64, 64, 64, 64, 96, 32),
    (28, 64, 64, 96, 64, 96, 64),
    (14, 224, 64, 96, 96, 128, 128),
    (14, 192, 96, 128, 96, 128, 128),
    (14, 160, 128, 160, 128, 160, 96),
    (14, 96, 128, 192, 160, 192, 96),
    (7, 352, 192, 320, 160, 224, 128),
    (7, 352, 192, 320, 192, 224, 128),
)
REDUCTIONS = {2: (28, 320, 128, 160, 64, 96), 6: (14, 576, 128, 192, 192, 256)}  # before the block of that index


def inception_v2() -> int:
    """Inception with batch normalization; a reduction's last 3×3 has stride 2, and its pooling keeps the channels."""
    macs, channels = 112**2 * 64 * 3 * 7**2 + 56**2 * (64 * 64 + 192 * 64 * 3**2), 192
    for index, (side, one, to_three, three, to_double, double, pooled) in enumerate(INCEPTION_V2):
        if index in REDUCTIONS:
            before, channels, inside, wide, twice, wider = REDUCTIONS[index]
            macs += before**2 * (channels * (inside + twice) + twice * wider * 9)
            macs += side**2 * (inside * wide * 9 + wider * wider * 9)
            channels += wide + wider
        macs += side**2 * channels * (one + to_three + to_double + pooled)
        macs += side**2 * 9 * (to_three * three + to_double * double + double * double)
        channels = one + three + double + pooled
    return macs + 1024 * 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected", "written_out"),
    [
        ("bvlc_alexnet", alexnet(), 654_560_384),
        ("zfnet512", zfnet(), 1_481_727_008),
        ("vgg19", vgg19(), 19_632_062_464),
        ("resnet50", resnet50(), 4_089_184_256),
        ("densenet121", densenet121(), 2_834_161_664),
        ("squeezenet", squeezenet(), 349_151_936),
        ("shufflenet", shufflenet(), 124_664_528),
        ("inception_v1", inception_v1(), 1_431_556_352),
        ("inception_v2", inception_v2(), 2_018_851_840),
    ],
)
def test_macs_follow_from_the_paper(name, expected, written_out):
    loaded = load_model(LIGHT / f"light_{name}.onnx", {})
    assert loaded.bounds is None
    counts = count_nodes(loaded.graph, loaded.bounds)
    assert expected == written_out
    assert sum(found.figure("macs") for found in counts) == expected
    assert all(found.work.is_counted and found.figure("bytes") is not None for found in counts)
