"""Data: labelled and unlabelled domains, and the endless index streams that batches are drawn from."""

from ba3us.data.domain import Source, Target
from ba3us.data.streams import BatchIndices, Streams

__all__ = ["BatchIndices", "Source", "Streams", "Target"]
