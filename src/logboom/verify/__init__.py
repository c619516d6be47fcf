"""Is what is stored what was written? Segments, replicas and archives, every byte."""
