"""How a rehearsal iteration is executed: one engine a file."""
