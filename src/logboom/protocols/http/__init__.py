"""HTTP with JSON: for those who have nothing but curl."""
