"""AIM with GReM: marginals are chosen by how badly they are known, and measured one by one.

"AIM+GReM" is by Fuentes, Mullins, Xiao, Kifer, Musco and Sheldon ("Fast private adaptive query
answering for large data domains"), after AIM by McKenna, Mullins, Sheldon and Miklau (VLDB 2022).
This folder holds what is public about it; `dpsql.planner.mechanisms.aim.run` runs it on data.

    the workload's marginals, and what may be measured     `candidates`
    what is paid for each round                            `schedule`
    how the price of a round is shared                     `conditional`
    one linear estimate of all marginals, GReM-MLE         `grem`
    answers that are not negative                          `fit`, `denoise`
    what is charged                                        `plan`
"""

from dpsql.planner.mechanisms.aim.plan import AdaptivePlan, Aim

__all__ = ["AdaptivePlan", "Aim"]
