"""What a script says: its help, its lines on stdout, and the names of flags and scripts in messages."""
