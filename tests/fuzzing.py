"""How many examples a property is tried with: a few in `make test`, FUZZ_EXAMPLES of each in `make fuzz`."""

import os


def examples(by_day: int) -> int:
    """For `max_examples` of Hypothesis."""
    return int(os.environ.get("FUZZ_EXAMPLES") or by_day)
