"""The way of a write through a node: gathered, validated, numbered, written, synced, answered."""
