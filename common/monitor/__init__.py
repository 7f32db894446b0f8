"""Live figures of a model: ten times a second for every client, their history, and alarms."""
