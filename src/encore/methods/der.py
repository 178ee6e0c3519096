"""DER, dark experience replay: remembered examples keep the logits they once had, and are held to them."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="dark_experience",
    classifier="nearest_class_mean",
    title="DER",
)
