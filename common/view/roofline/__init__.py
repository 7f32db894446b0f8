"""The roofs of the host, and the nodes under them."""
