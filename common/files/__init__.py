"""Files that a user gives: small texts, YAML, configurations with sources, long JSON."""
