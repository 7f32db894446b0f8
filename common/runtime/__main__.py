"""Print the execution providers: what each needs, whether it is present, what its trace gives."""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from common.runtime.providers.provider_table import provider_rows
from common.view.profile.provider_text import provider_report

if __name__ == "__main__":
    print(provider_report(provider_rows()))
