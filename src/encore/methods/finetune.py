"""Learning from the incoming examples alone, without a memory: how much is forgotten if nothing is done."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="nothing",
    retention="nothing",
    objective="cross_entropy",
    classifier="softmax",
    title="Finetune",
)
