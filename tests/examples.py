"""How many examples a property test tries: few in the suite, many times as many with `--hypothesis-profile=fuzz`."""

from hypothesis import settings

_FUZZ_FACTOR = 20


def examples(count: int) -> int:
    """The number for the profile in use; `count` is the suite's."""
    fuzzing = settings().max_examples >= settings.get_profile("fuzz").max_examples
    return count * _FUZZ_FACTOR if fuzzing else count
