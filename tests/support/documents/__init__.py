"""What README and docs show of a recorded output."""
