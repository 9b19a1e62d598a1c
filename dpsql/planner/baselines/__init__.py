"""The mechanisms of the literature, each readable on its own.

`residualplanner`, `residualplanner_plus` and `fourier` are `querysmasher` with other strategies for
the residual spaces. The others are mechanisms of their own.
"""
