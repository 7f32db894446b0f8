"""Generators of requests for a service: by the wall clock, by a virtual one, or by MLPerf LoadGen."""
