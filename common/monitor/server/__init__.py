"""The server of the page, the ticks and the API: its doors, its addresses, its clients."""
