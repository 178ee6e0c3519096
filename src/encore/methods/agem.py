"""Averaged gradient episodic memory: no step may raise the loss of a batch out of the memory."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="gradient_projection",
    classifier="nearest_class_mean",
    title="A-GEM",
)
