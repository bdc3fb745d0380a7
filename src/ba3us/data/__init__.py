"""Data: domains and the endless index streams that batches are drawn from; feature files; lists of images."""

from ba3us.data.domains import Source, Target
from ba3us.data.files import FeatureSet, read_features, write_features
from ba3us.data.image_domains import ImageSource, ImageTarget
from ba3us.data.images import ImageList, read_images
from ba3us.data.streams import BatchIndices, Streams

__all__ = [
    "BatchIndices",
    "FeatureSet",
    "ImageList",
    "ImageSource",
    "ImageTarget",
    "Source",
    "Streams",
    "Target",
    "read_features",
    "read_images",
    "write_features",
]
