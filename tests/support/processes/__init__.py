"""Programs of this project, and servers, while they run."""
