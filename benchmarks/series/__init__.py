"""Statistics of latency series: how often limits, verdicts and changes of level are right, on laws that are known."""
