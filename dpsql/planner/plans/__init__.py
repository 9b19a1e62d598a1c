"""What a plan is: certified measurements, their expected errors, and its objective."""
