"""Offline ER: experience replay that goes through each task 50 times."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="cross_entropy",
    classifier="nearest_class_mean",
    title="offline ER",
    usual={"epochs": 50},
)
