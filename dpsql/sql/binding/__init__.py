"""From a syntax tree to cores over the schema, and what is left to compute on their answers."""
