"""The mends of each rule of ``configs/bottlenecks.yaml``: a new mend is a file in ``mends/`` and its name here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import onnx

from common.mending.mends.bind_dimensions import bind_dimensions
from common.mending.mends.cancel_transposes import cancel_transposes
from common.mending.mends.convolutions.fold_batch_normalization import fold_batch_normalization
from common.mending.mends.convolutions.move_resize import move_resize
from common.mending.mends.convolutions.pad_channels import pad_channels
from common.mending.mends.drop_cast_pairs import drop_cast_pairs
from common.mending.mends.expand_einsum import expand_einsum
from common.mending.mends.freeze_weights import freeze_weights
from common.mending.mends.fuse_gelu import fuse_gelu
from common.mending.mends.fuse_layer_normalization import fuse_layer_normalization
from common.mending.mends.merge_constants import merge_constants
from common.mending.mends.replace_cumsum import replace_cumsum
from common.mending.mends.slice_gather import slice_gather
from common.mending.mends.widen_halves import widen_halves
from common.mending.rewrite import Case, Mend, NoMend

# In the order in which they are tried, each on what the one before it left.
MENDS: Mapping[str, Sequence[Mend]] = MappingProxyType(
    {
        "below_memory_roof": (replace_cumsum, move_resize, merge_constants),
        "below_compute_roof": (move_resize,),
        "single_thread": (replace_cumsum,),
        "outside_blocked_layout": (freeze_weights, pad_channels),
        "layout_conversions": (pad_channels,),
        "normalization_as_convolution": (fold_batch_normalization,),
        "element_wise_chain": (merge_constants, fuse_gelu),
        "gathers": (slice_gather,),
        "einsum": (expand_einsum,),
        "transposes": (cancel_transposes,),
        "format_conversions": (drop_cast_pairs, widen_halves),
        "format_island": (drop_cast_pairs, widen_halves),
        "unfused_conv": (freeze_weights, fold_batch_normalization),
        "unfused_product": (bind_dimensions, freeze_weights),
        "unfused_gelu": (fuse_gelu,),
        "unfused_norm": (fuse_layer_normalization,),
        "tiny_nodes": (bind_dimensions, merge_constants, fuse_gelu, fuse_layer_normalization),
    }
)


@dataclass(frozen=True, slots=True)
class MendTrial:
    """What became of a model, None where no mend applied, that a rule's mends were tried on."""

    model: onnx.ModelProto | None
    mends: tuple[str, ...]
    changed: tuple[str, ...]  # nodes, weights or dimensions that they changed
    reasons: Mapping[str, str]  # why each of the others did not apply, by name


def tried(rule: str, case: Case) -> MendTrial:
    """Apply the mends of a rule one after the other."""
    mends, changed, reasons = list[str](), list[str](), dict[str, str]()
    current = case
    for mend in MENDS.get(rule, ()):
        outcome = mend(current)
        if isinstance(outcome, NoMend):
            reasons[mend.__name__] = outcome.reason
            continue
        mends.append(mend.__name__)
        changed += outcome.changed
        current = replace(current, model=outcome.model)
    return MendTrial(current.model if mends else None, tuple(mends), tuple(dict.fromkeys(changed)), reasons)
