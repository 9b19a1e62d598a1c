"""From a charged plan to noisy measurements, and from those to answers."""
