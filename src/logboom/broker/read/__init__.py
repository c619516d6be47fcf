"""The way of a read through a node: from a start to ranges of files, filtered where asked; and feeds for copies."""
