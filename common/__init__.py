"""The rooms of the pipeline: each knows one subject; only the numbered scripts bring two of them together."""
