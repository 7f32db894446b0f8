"""RAPL counters, by pyRAPL and by the powercap tree."""
