"""Reading logs straight from their files, beside the node."""
