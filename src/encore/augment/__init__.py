"""Augmentation of a whole batch of images at once, with a draw of its own for every image."""
