"""Transactions, and the stages they are made of."""
