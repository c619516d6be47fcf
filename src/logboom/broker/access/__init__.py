"""Who may do what, as a node keeps and decides it."""
