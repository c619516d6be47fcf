"""Writers, blocking and asyncio, on one core without I/O."""
