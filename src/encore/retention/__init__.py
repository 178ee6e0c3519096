"""Which slots of the memory to overwrite: one rule a file."""
