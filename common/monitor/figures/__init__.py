"""The figures of a tick: runs as they end, sensors, what follows from them, their names, and alarms on them."""
