"""What the HTTP API says of itself: operations, JSON schema, OpenAPI, a page."""
