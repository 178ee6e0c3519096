"""The benchmarks' files: where they lie, whether they are right, how they are fetched and safely read."""
