"""An array of processing elements: its cycles, its resources, and the operators behind it."""
