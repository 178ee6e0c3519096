"""Speed, as ratios against a rival in the same run: `python -m benchmarks.speed` runs every case."""
