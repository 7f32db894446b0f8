"""Generators of requests for a service: by the wall clock, or by MLPerf LoadGen."""
