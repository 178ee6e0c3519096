"""Experience replay with distillation from the running average of the network's own weights."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="momentum_distillation",
    classifier="softmax",
)
