"""All that can be set about corpora, as one section ``corpora``; each part lies where it is used."""

from pydantic import Field

from corpora.rag.cache import CacheConfig
from corpora.rag.calibration import DEFAULTS, Calibration
from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.registry import RegistryConfig
from corpora.rag.retrieve_config import RetrieveConfig
from corpora.rag.rollout_config import RolloutConfig


class CorporaConfig(RegistryConfig):
    """Which corpora there are, and how they are filled and searched."""

    retrieve: RetrieveConfig = RetrieveConfig()
    calibrations: dict[str, Calibration] = Field(
        dict(DEFAULTS),
        description="Curves from scores to relevance, by embedding model; the threshold is held against relevance. Fit "
        "another model's with strata calibrate. What is not named here keeps its shipped curve.",
    )
    cache: CacheConfig = CacheConfig()
    ingest: IngestQueueConfig = IngestQueueConfig()
    rollout: RolloutConfig = RolloutConfig()
