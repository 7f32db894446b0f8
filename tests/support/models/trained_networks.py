"""Small networks that are trained here on scikit-learn's digits, as ONNX models; they need PyTorch.

The images are 8 x 8 with 16 levels of grey, from 43 writers (Alpaydin and Kaynak 1998, UCI). Training takes a minute
for each network on two cores; it is seeded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

TRAINED, CLASSES = 1000, 10
EPOCHS, BATCH = 15, 50


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images, (1797, 1, 8, 8) between 0 and 1, and their classes, in an order that is drawn."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    return (data.images[order, None] / 16).astype(np.float32), data.target[order]


class Residual(nn.Module):
    """A basic block (He et al. 2016, arXiv:1512.03385)."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(width, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider))
        self.second = nn.Sequential(nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider))
        self.short = nn.Sequential(nn.Conv2d(width, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + self.short(x))


def resnet() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    blocks = [Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def _separable(width: int, wider: int, stride: int) -> nn.Sequential:
    """Depthwise and pointwise convolutions (Howard et al. 2017, arXiv:1704.04861)."""
    return nn.Sequential(
        *(nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU6()),
        *(nn.Conv2d(width, wider, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU6()),
    )


def mobilenet() -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
    blocks = [_separable(16, 32, 1), _separable(32, 64, 2), _separable(64, 64, 1), _separable(64, 128, 2)]
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))


class Encoder(nn.Module):
    """A pre-norm block of an encoder (Dosovitskiy et al. 2021, arXiv:2010.11929)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        query, key, value = (
            part.reshape(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.projected(self.before(x)).chunk(3, -1)
        )
        weights = (query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5).softmax(-1)
        x = x + self.joined((weights @ value).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class VisionTransformer(nn.Module):
    """Patches of 2 x 2, three blocks, the mean of the tokens."""

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)), nn.LayerNorm(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(tokens).mean(1))


NETWORKS = {"resnet": resnet, "mobilenet": mobilenet, "vit": VisionTransformer}


def trained(name: str, path: Path) -> None:
    """Train a network on the first images, and write it with a batch of any size."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # threads that wait for each other cost most of the time here
    images, classes = (torch.from_numpy(array[:TRAINED]) for array in digits())
    network = NETWORKS[name]()
    steps = EPOCHS * TRAINED // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for _ in range(EPOCHS):
        for part in torch.randperm(TRAINED).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(network(images[part]), classes[part]).backward()
            optimizer.step()
            schedule.step()
    names = {"input_names": ["image"], "output_names": ["scores"]}
    axes = {"image": {0: "N"}, "scores": {0: "N"}}
    torch.onnx.export(
        network.eval(), (images[:1],), str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names
    )
