"""The seam to the operating system: files, maps, directories, syncs."""
