"""A folder of artifacts and one small table in it."""

import pandas as pd

from common.artifacts.provenance import Provenance
from common.artifacts.store import Store

MERGE, PROFILE, PATH = "03_merge_profile_metrics.py", "01_profile_onnx.py", "04_critical_path.py"


def store(folder, stage=MERGE, *, model_id="", lenient=False, **changes):
    return Store(
        folder, Provenance(stage, stage, model_id=model_id, model_path=model_id[:2], **changes), lenient=lenient
    )


def edges(*tensors, size=3):
    rows = [{"tensor": name, "producer": "", "consumer": "x", "tensor_bytes": size} for name in tensors or ("a",)]
    return pd.DataFrame(rows)
