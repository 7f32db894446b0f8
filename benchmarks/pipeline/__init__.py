"""The pipeline itself: time and memory of its stages, on growing models, and of its live dashboard."""
