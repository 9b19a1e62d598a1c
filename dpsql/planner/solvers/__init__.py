"""Solvers for one subworkload, one algorithm a file; `choose` says which is taken when."""
