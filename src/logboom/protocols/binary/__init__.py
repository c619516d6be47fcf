"""Logboom's own protocol: frames with a typed head and, where records travel, batches as they are stored."""
