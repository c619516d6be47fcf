"""Work queues: the records of a group of mode `queue`, leased one by one to its members."""
