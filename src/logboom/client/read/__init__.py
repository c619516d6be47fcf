"""Readers over the network, blocking and asyncio, on one core without I/O."""
