"""What every file of a folder must be: columns, cells and fields of their declared kinds."""
