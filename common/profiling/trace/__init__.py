"""The runtime's trace: events, the nodes and runs in them, and when each node ran."""
