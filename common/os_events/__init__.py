"""What the operating system did to our threads while the runs were timed, and which slow runs that explains."""
