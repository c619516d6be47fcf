"""What programs mean by values, and the bytes that are stored of them: see `serializer`."""
