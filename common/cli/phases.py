"""The phase of a generative model that the tables of a stage are of."""

from __future__ import annotations

from typing import cast

from common.artifacts.folder import Folder
from common.table_rows import PhaseWorkRow


def phase_of(tables: Folder) -> list[PhaseWorkRow]:
    """Return the work of the phase that the tables read so far are of, part by part; nothing for other models.

    Raises:
        UpstreamError: the phases cannot be read, or none is of these tables.
    """
    if not tables.has("phase_work"):
        return []
    from common.artifacts.frames import records

    return cast("list[PhaseWorkRow]", records(tables.variant("phase_work")))
