"""Generate what follows from the declarations: documents, make variables and row types.

python -m common.artifacts docs > docs/ARTIFACTS.md
python -m common.artifacts metrics > docs/METRICS.md
python -m common.artifacts make > stages.mk
python -m common.artifacts rows > common/table_rows.pyi
python -m common.artifacts settle FOLDER ...
"""

from __future__ import annotations

import sys
from pathlib import Path

from common.artifacts.generated.describe import describe_all
from common.artifacts.generated.make_rules import stage_variables
from common.artifacts.generated.metrics import describe_metrics
from common.artifacts.generated.row_types import row_types
from common.artifacts.journal import tidy
from common.messages.errors import CommandLineError, PipelineError

TEXTS = {"docs": describe_all, "metrics": describe_metrics, "make": stage_variables, "rows": row_types}


def main() -> int:
    """Print the text that the only argument names, or complete what killed stages left in some folders."""
    try:
        if sys.argv[1:2] == ["settle"]:
            for folder in sys.argv[2:]:
                tidy(Path(folder))
            return 0
        if len(sys.argv) != 2 or sys.argv[1] not in TEXTS:
            raise CommandLineError("command line", "takes one argument", f"give {' or '.join(TEXTS)}")
    except PipelineError as error:
        print(f"python -m common.artifacts: error: {error}".replace("<out>", "another folder"), file=sys.stderr)
        return error.exit_code
    print(TEXTS[sys.argv[1]](), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
