"""Measurements: every number that the documentation states comes from a command in this folder."""
