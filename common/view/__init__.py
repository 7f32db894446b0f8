"""Every plot and every text table; only its plotting modules import matplotlib."""

import os

# Matplotlib would make a folder of settings in the user's home; all that it keeps is a cache of fonts.
_caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser(f"{_caches}/matplotlib"))  # noqa: PTH111
