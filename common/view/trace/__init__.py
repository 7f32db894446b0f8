"""What 09 and 13 print: timelines, bottlenecks, profiles of NPUs."""
