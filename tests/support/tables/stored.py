"""A folder of artifacts and one small table in it."""

import pandas as pd

from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction

MERGE, PROFILE, PATH = "03_merge_profile_metrics.py", "01_profile_onnx.py", "04_critical_path.py"


class Stored(Folder):
    """A folder that is read and then written by one stage, as the context of a stage does it."""

    def writing(self):
        return Transaction(self.root, self.record, self.inherited)


def store(folder, stage=MERGE, *, model_id="", lenient=False, **changes):
    record = Provenance(stage, stage, model_id=model_id, model_path=model_id[:2], **changes)
    return Stored(folder, record, lenient=lenient)


def edges(*tensors, size=3):
    rows = [{"tensor": name, "producer": "", "consumer": "x", "tensor_bytes": size} for name in tensors or ("a",)]
    return pd.DataFrame(rows)
