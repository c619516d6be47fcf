"""The parts of the demo: what its processes do, and what is shown of it."""
