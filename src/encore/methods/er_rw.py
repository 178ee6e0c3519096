"""ER-rw, reweighted experience replay: memory and incoming share a weight of one between them."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="reweighted_cross_entropy",
    classifier="nearest_class_mean",
    title="ER-rw",
    usual={"learning_rate": 0.2},
)
