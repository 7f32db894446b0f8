"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# On a machine whose cores are all busy, examples take as long as they take: time is not what a property test judges.
settings.register_profile("any_load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_load")
