"""Times, work, energy and the critical path of the executed nodes."""
