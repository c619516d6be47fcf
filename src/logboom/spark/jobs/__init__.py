"""The pipeline's jobs: what a log needs done to it at scale."""
