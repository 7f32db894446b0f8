"""Layers, mappings and schedules that are small enough to try or to execute all of."""
