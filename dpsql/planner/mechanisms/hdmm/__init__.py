"""HDMM, the high-dimensional matrix mechanism (McKenna, Miklau, Hay and Machanavajjhala, JPC 2023).

One strategy is measured, and all answers follow from it by least squares. The strategies are
searched among those that can be written down for large domains:

    OPT_0           over the cells of one attribute                       `strategies`
    OPT_⊗, OPT_+    one Kronecker product; one per set of attributes      `templates`
    OPT_M           marginals with weights                                `marginals`

and the best is taken (`plan`). The noise is Gaussian, or Laplace for pure ε; what is best differs.
"""
