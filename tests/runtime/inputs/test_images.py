"""Images as a model takes them, against arithmetic that is written out."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from common.graphs.graph import Tensor
from common.runtime.inputs.images import NORMALIZATIONS, decoded, image_form, normalized, resized, strictly


def tensor(shape):
    return Tensor(name="x", dtype="float32", element_bits=32, shape=shape, kind="input")


def encoded(image, kind="JPEG"):
    stream = BytesIO()
    image.save(stream, kind, quality=95)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("imagenet", [(0.2 - 0.485) / 0.229, (0.4 - 0.456) / 0.224, (1.0 - 0.406) / 0.225]),
        ("signed", [-0.6, -0.2, 1.0]),
        ("unit", [0.2, 0.4, 1.0]),
        ("none", [51, 102, 255]),
    ],
)
def test_each_normalization_of_a_colour(name, values):
    form = image_form(tensor((1, 3, 5, 7)), np.dtype(np.float32))
    planes = normalized(Image.new("RGB", (7, 5), (51, 102, 255)), form, NORMALIZATIONS[name])
    assert (planes.shape, planes.dtype) == ((1, 3, 5, 7), np.float32)
    for channel, value in enumerate(values):
        assert planes[0, channel] == pytest.approx(value, abs=1e-5)


def test_channels_last_and_whole_numbers():
    form = image_form(tensor((1, 5, 7, 3)), np.dtype(np.uint8))
    image = Image.new("RGB", (7, 5))
    image.putpixel((6, 4), (11, 13, 17))
    pixels = normalized(image, form, None)
    assert (pixels.shape, pixels.dtype) == ((1, 5, 7, 3), np.uint8)
    assert pixels[0, 4, 6].tolist() == [11, 13, 17] and pixels.sum() == 41


def test_a_jpeg_keeps_its_colours_where_they_are():
    """Red left of green: after the crop each half has its colour, but for what JPEG blurs at the border."""
    image = Image.new("RGB", (97, 61), (200, 0, 0))
    image.paste((0, 200, 0), (48, 0, 97, 61))
    form = image_form(tensor((1, 3, 29, 31)), np.dtype(np.float32))
    red, green, blue = normalized(resized(decoded(encoded(image)), form), form, None)[0]
    assert red[:, :13] == pytest.approx(200, abs=9) and red[:, 18:] == pytest.approx(0, abs=9)
    assert green[:, 18:] == pytest.approx(200, abs=9) and green[:, :13] == pytest.approx(0, abs=9)
    assert blue == pytest.approx(0, abs=40)


def test_grey_and_transparent_images_become_colours():
    assert decoded(encoded(Image.new("L", (3, 2), 77))).getpixel((0, 0)) == (77, 77, 77)
    assert decoded(encoded(Image.new("RGBA", (3, 2), (1, 2, 3, 4)), "PNG")).getpixel((0, 0)) == (1, 2, 3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("kept", [0, 11, 0.5])
def test_a_file_that_is_cut_off_is_an_error(kind, kept):
    noise = np.random.default_rng(0).integers(0, 255, (61, 97, 3), np.uint8)
    content = encoded(Image.fromarray(noise), kind)
    with pytest.raises((ValueError, OSError)):
        decoded(content[: int(kept * len(content)) if kept < 1 else kept])


def test_an_image_of_very_many_pixels_is_refused_where_nobody_runs_beside(monkeypatch):
    content = encoded(Image.new("RGB", (97, 61)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 97 * 61 - 1)
    with pytest.raises(ValueError, match="exceeds limit"):
        strictly(lambda: decoded(content))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 97 * 61 // 2 - 1)
    with pytest.raises(ValueError, match="exceeds limit"):
        decoded(content)


@pytest.mark.parametrize("shape", [(1, 4, 5, 7), (3, 5, 7), None, (1, 3, "h", "w")])
def test_other_inputs_take_no_images(shape):
    with pytest.raises(ValueError, match=r"an image needs an input of shape \(N, 3, H, W\) or \(N, H, W, 3\)"):
        image_form(tensor(shape), np.dtype(np.float32))
