"""A decoder as its caller sees it, its phases, the loop that feeds its caches back, and streams of its tokens."""
