"""Stages, and their publication into logs: all of it, once."""
