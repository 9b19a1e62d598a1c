"""Residual spaces: how queries fall into parts that can be measured apart."""
