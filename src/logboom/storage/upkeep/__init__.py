"""What is done to sealed segments: retention, recompression, scrubbing, the queue of delete hooks."""
