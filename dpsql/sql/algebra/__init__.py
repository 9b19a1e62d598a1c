"""Queries over private rows as relations: one method for each clause and node."""
