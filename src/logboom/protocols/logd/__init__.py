"""The logd text protocol: for those who have nothing but netcat."""
