"""Plans: certified measurements, their expected errors, and the objective."""
