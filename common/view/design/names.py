"""Short names of accelerators of one sweep: the sizes in which they differ."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from common.view.design.text_tables import short_name


class DesignNames(NamedTuple):
    """Names by design, and what the sizes in them are; empty where the names say so themselves."""

    of: dict[str, str]
    explanation: str


def design_names(points: pd.DataFrame) -> DesignNames:
    """Return ``128, 64, 32x32`` for ``gemmini scratchpad_kib=128 accumulator_kib=64 array=32x32``."""
    names = {
        name: short_name(name, hardware) for name, hardware in zip(points["design"], points["hardware"], strict=True)
    }
    sizes = {design: dict(word.partition("=")[::2] for word in name.split()) for design, name in names.items()}
    keys = {tuple(sized) for sized in sizes.values()}
    if len(keys) != 1 or len(only := keys.pop()) < 2:
        return DesignNames(names, "")
    return DesignNames({design: ", ".join(sized.values()) for design, sized in sizes.items()}, ", ".join(only))
