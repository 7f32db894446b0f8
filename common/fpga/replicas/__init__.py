"""Plans that fill the card: several complete accelerators, and the frames, layers or heads that they divide."""
