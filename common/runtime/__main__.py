"""Print the execution providers: what each needs, whether it is present, what its trace gives."""

from __future__ import annotations

from common.runtime.provider_table import provider_rows
from common.view.provider_text import provider_report

if __name__ == "__main__":
    print(provider_report(provider_rows()))
