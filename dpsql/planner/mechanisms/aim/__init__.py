"""AIM with GReM: marginals are chosen by how badly they are known, and measured one by one.

"AIM+GReM" is by Fuentes, Mullins, Xiao, Kifer, Musco and Sheldon ("Fast private adaptive query
answering for large data domains"), after AIM by McKenna, Mullins, Sheldon and Miklau (VLDB 2022).

    what is charged, and what can't be answered                                `plan`
    what may be measured of each table, and what that is worth                 `targets`
    how the price of a round is shared; estimates of all marginals             `estimates`
    the rounds, and what is paid for each                                      `rounds`
"""
