"""A-GEM, averaged gradient episodic memory: no step goes against the gradient of remembered examples."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="gradient_projection",
    classifier="nearest_class_mean",
    title="A-GEM",
)
