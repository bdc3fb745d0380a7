"""Runs on images: from folders or list files to a run directory, and to predictions for more images."""

from ba3us.image_runs.options import ImageOptions
from ba3us.image_runs.run import adapt_images, are_images, is_image_run, is_images, predict_images

__all__ = ["ImageOptions", "adapt_images", "are_images", "is_image_run", "is_images", "predict_images"]
