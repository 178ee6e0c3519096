"""Finetune: learning from the incoming examples alone, with nothing done against forgetting."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="nothing",
    retention="nothing",
    objective="cross_entropy",
    classifier="softmax",
    title="Finetune",
)
