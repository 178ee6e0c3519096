"""What a rehearsal iteration minimises: one objective a file."""
