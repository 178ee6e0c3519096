"""Labelled images to make streams of: one benchmark a file."""
