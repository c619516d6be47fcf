"""Members of a group: consumers that share the logs of topics, blocking and asyncio, on one core without I/O."""
