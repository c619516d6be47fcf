"""Consumers that share the logs of topics: who they are, who has which log, and how logs move between them."""
