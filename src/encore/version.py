"""The version, in one place: the package, its records and its checkpoints carry it."""

VERSION = "0.1.0"
