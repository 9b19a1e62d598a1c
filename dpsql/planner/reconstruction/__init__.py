"""How answers, variances and covariances follow from measurements."""
