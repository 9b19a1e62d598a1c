"""Mechanisms: each says why it cannot answer a workload, and plans it."""
