"""DER++: dark experience replay that learns the remembered examples' labels, too."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="dark_experience",
    classifier="nearest_class_mean",
    title="DER++",
    options={"objective.label_weight": 0.5},
)
