"""The process around a node: configuration, listeners, wiring, signals."""
