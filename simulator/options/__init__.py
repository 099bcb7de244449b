"""All ways to faster decoding side by side: what each gains, costs, risks, and what would settle it.

Reading guide: `record` is what an option says, `situation` computes any change of the deployment against today's
baseline, the other modules each have one function `options(situation)` that yields the options of their kind, and
`compare` puts them in order. Equations: docs/options.md.
"""
