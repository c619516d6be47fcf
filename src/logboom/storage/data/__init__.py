"""A data directory: its lock and identity, its topics, the state file."""
