"""Metrics as Prometheus scrapes them, and by how much they grew between two looks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from evaluation.load.quantiles import Histogram

Series = tuple[str, frozenset[tuple[str, str]]]


class Scrape(msgspec.Struct, frozen=True):
    """The samples of one look, or what was added to them since another.

    Args:
        samples: Values by series.
    """

    samples: Mapping[Series, float]

    @classmethod
    def parse(cls, texts: Iterable[str], prefix: str) -> "Scrape":
        """Read what exporters show.

        Args:
            texts: One a node, in the text format of Prometheus.
            prefix: Samples whose names begin otherwise are left out; of Ray's own there are thousands.
        """
        samples: dict[Series, float] = {}
        for text in texts:
            kept = "\n".join(line for line in text.splitlines() if line.startswith(prefix))
            for family in text_string_to_metric_families(kept + "\n"):
                samples |= {(each.name, frozenset(each.labels.items())): each.value for each in family.samples}
        return cls(samples)

    def since(self, earlier: "Scrape") -> "Scrape":
        """What was added since; a counter that is less than it was has begun anew with its process."""
        before = earlier.samples
        grown = {series: value - before.get(series, 0.0) for series, value in self.samples.items()}
        return Scrape({series: by if by >= 0 else self.samples[series] for series, by in grown.items()})

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of this name that have these labels, for instance those of all replicas."""
        return sum(value for (found, own), value in self.samples.items() if found == name and labels.items() <= own)

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The sum of the histograms of this name that have these labels; an empty one when there is none."""
        buckets: dict[float, float] = defaultdict(float)
        for (found, own), value in self.samples.items():
            if found == f"{name}_bucket" and labels.items() <= own:
                buckets[float(dict(own)["le"])] += value
        return Histogram.of(buckets)
