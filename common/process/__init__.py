"""The process that a script is, and the machine it runs on."""
