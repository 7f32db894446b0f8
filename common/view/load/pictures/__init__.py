"""Pictures of load tests."""
