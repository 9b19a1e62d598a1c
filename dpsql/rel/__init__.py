"""Relations: the rows that a statement is about, as an algebra of the rows of single units."""
