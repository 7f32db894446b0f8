"""What measures a run: its clock, its recorder, the profiler, sensors, ceilings and the power of processors."""
