"""From a workload to a certified plan: decompose, solve, allocate, round, certify."""
