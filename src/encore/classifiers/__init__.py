"""How questions are answered from a model and its memory: one classifier a file."""
