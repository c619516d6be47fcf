"""What a node does with its logs, whoever asks: upkeep, and later the one API of append, read and subscribe."""
