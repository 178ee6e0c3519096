"""Reweighted experience replay: the memory's share of the loss is chosen, at twice the learning rate."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="reweighted_cross_entropy",
    classifier="nearest_class_mean",
    title="ER-rw",
    usual={"learning_rate": 0.2},
)
