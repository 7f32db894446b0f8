"""The model's nodes that the names in a trace denote, for a trace whose executed graph was not saved.

The runtime names what it fuses or moves to another layout after a node or a tensor of the model:
``<tensor>[_bn|_mul]_nchwc``, ``<node>_token_<number>``, ``<node>/<name of the fusion>``, ``fused <node>``,
``Inserted…Cast_<tensor>``. A node that it inserted between two others has no name of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SUFFIX = re.compile(r"_(nchwc|bn|mul|nhwc|token_\d+|fused|quant)$")
_FUSION = re.compile(r"/\w+Fusion/?$")


def model_names(traced: str) -> tuple[str, ...]:
    """Return the names of the model that a traced name may denote, the longest first."""
    return tuple(dict.fromkeys(_readings(traced.removeprefix("fused "))))


def _readings(name: str) -> Iterator[str]:
    yield name
    for pattern in (_SUFFIX, _FUSION):
        if (shorter := pattern.sub("", name)) not in ("", name):
            yield from _readings(shorter)
