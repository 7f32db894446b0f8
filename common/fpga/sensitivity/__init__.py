"""How the gain of a plan changes with what is uncertain, and with what could be chosen otherwise."""
