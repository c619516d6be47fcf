"""A node's own state: dictionaries that internal logs feed, and the cursors."""
