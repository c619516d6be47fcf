"""A node that copies another: finds its source, keeps up with it, and tells how far behind it is."""
