"""Learning without forgetting: no memory, but the last task's network as a teacher."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="nothing",
    retention="nothing",
    objective="learning_without_forgetting",
    classifier="softmax",
    title="LwF",
)
