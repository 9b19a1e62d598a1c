"""Answers, variances and covariances, as they follow from measurements."""
