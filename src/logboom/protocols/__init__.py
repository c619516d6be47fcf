"""Front-ends: each knows the broker and nothing of the others."""
