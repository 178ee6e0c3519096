"""Which slots of the memory to rehearse: one rule a file."""
