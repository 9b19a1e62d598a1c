"""How rows are drawn from tables of their columns; nothing of releases or of what they measured."""
