"""Other programs that search mappings, on the problems of this project."""
