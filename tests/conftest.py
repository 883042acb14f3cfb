"""Profiles of the property tests: few fixed examples by default, many fresh ones with `--hypothesis-profile=fuzz`."""

from hypothesis import HealthCheck, settings

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("suite", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW)
settings.register_profile("fuzz", max_examples=1000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile("suite")
