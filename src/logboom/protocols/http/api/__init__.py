"""The operations of the HTTP API, a file for each thing they speak of."""
