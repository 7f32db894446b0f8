"""Search engines: each proposes schedules of a problem, and learns what they cost."""
