"""One loop nest on an accelerator: how it is mapped, what it moves, and what that costs."""
