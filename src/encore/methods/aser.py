"""Experience replay by the adversarial Shapley value, which chooses what to rehearse and what to keep."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="aser",
    retention="aser",
    objective="cross_entropy",
    classifier="nearest_class_mean",
)
