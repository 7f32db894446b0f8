"""The output of 09 and 13: timelines, bottlenecks, profiles of NPUs."""
