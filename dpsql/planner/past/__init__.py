"""What was measured before: combining it with new measurements, and planning on it."""
