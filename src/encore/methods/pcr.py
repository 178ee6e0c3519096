"""Proxy-based contrastive replay: examples are contrasted with the proxies of their batch's classes."""

from encore.interfaces import Recipe

RECIPE = Recipe(
    retrieval="uniform",
    retention="reservoir",
    objective="proxy_contrastive",
    classifier="softmax",
)
