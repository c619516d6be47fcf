"""Who sends a request."""
