"""How hard to rehearse each incoming batch: one controller a file."""
