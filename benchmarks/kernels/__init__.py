"""Models of kernels on a board: their fits, and the published figures that they are compared with."""
