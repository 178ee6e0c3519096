"""Networks, each an encoder and a linear head: one network a file."""
