"""Experience replay of what the incoming batch would interfere with most; with RAR it is MIR-RAR."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="mir",
    retention="reservoir",
    objective="cross_entropy",
    classifier="nearest_class_mean",
)
