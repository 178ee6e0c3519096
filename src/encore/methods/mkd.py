"""Experience replay with distillation from the running average of the network's own weights."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="momentum_distillation",
    classifier="softmax",
    # The loss is 1 + 5.5 as large as that of ER: at a rate of 0.1 the network diverges from its teacher.
    usual={"learning_rate": 0.02},
)
