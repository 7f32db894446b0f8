"""Events of the operating system during the timed runs, and the slow runs that they explain."""
