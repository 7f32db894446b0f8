"""Services that answer requests: sessions of a model, in this process or in others."""
