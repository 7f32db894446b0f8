"""Sessions: how they are opened, which threads they have, and what ends their runs."""
