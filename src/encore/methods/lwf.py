"""LwF, learning without forgetting: no memory, but the network as it was a task ago for a teacher."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="nothing",
    retention="nothing",
    objective="learning_without_forgetting",
    classifier="softmax",
    title="LwF",
)
