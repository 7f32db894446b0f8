"""What goes to the card, on which engines, in which order: the offload plan as a program, and its yardsticks."""
