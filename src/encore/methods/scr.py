"""Supervised contrastive replay; with repeats and augmentation it is SCR-RAR."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="supervised_contrastive",
    classifier="nearest_class_mean",
    usual={"memory_batch_size": 100},
)
