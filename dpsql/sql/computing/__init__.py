"""What statements compute on noisy answers, and what becomes of the noise."""
