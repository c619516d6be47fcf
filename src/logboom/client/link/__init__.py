"""Connections to a node, and the calls made over them."""
