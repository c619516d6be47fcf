"""What keeps a node from strangers: certificates, keys of identity providers, modes of files."""
