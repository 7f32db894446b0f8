"""A decoder on a card: what its memory holds, how long a token and an answer take, and where each phase runs."""
