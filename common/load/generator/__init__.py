"""What lets requests come to a service: by the wall clock, by a virtual one, or by MLPerf LoadGen."""
