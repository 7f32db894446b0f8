"""What a model does right now: its figures ten times a second for every client, their history, and alarms."""
