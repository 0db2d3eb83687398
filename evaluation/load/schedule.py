"""When requests are due, whatever becomes of those before."""

from typing import Literal

import numpy as np

Arrivals = Literal["poisson", "constant"]


def arrivals(rate: float, seconds: float, kind: Arrivals, seed: int = 0) -> list[float]:
    """The moments of a step of load.

    Args:
        rate: Arrivals a second, above 0.
        seconds: How long the step is.
        kind: ``constant`` has them evenly apart. ``poisson`` has them as independent callers make them: uniform over
            the step, which is a Poisson process given the number of its arrivals, so that the rate is met exactly.
        seed: The same seed gives the same moments.

    Returns:
        ``rate · seconds`` moments, at least one, in seconds after the step begins, rising.
    """
    count = max(1, round(rate * seconds))
    if kind == "constant":
        return [number / rate for number in range(count)]
    moments: list[float] = np.sort(np.random.default_rng(seed).uniform(0, seconds, count)).tolist()
    return moments
