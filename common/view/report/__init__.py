"""The report: one page that works offline, sorts and filters, and shows one node in every picture and table."""
