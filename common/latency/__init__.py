"""Latency series: the recorder of runs, the histogram, statistics with confidence limits, and the steady state."""
