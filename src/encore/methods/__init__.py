"""Methods as recipes of parts: one method a file."""
