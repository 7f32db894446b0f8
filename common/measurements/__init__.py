"""Measurements that need several rooms: a profile, an imported profile, two models in turn, a live model."""
