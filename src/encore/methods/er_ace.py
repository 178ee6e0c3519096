"""Asymmetric cross-entropy: incoming examples compete only with the classes of their own batch."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="asymmetric_cross_entropy",
    classifier="softmax",
)
