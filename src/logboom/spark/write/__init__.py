"""Spark as a writer: every row once, or none."""
