"""The rooms of the pipeline: each knows one subject; only the numbered scripts bring two of them together.

Nothing leaves this machine: before any package is imported, this one forbids those that would send what they see.
"""

import os

# ONNX Runtime (from 1.31 on) and Ray send telemetry unless they are told not to. Workers inherit the variables.
os.environ.update(ORT_DISABLE_TELEMETRY="1", RAY_USAGE_STATS_ENABLED="0")
