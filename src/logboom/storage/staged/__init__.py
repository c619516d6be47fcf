"""Stages on disk: batches that are in no log yet."""
