"""Experience replay; with repeats and augmentation it is ER-RAR."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="cross_entropy",
    classifier="nearest_class_mean",
)
