"""What a node does to its logs on its own: retention with hooks, recompression, scrubbing, the trash."""
