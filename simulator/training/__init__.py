"""What training a draft head costs: data, GPU-hours of each stage, memory, money, and when the gain has paid for it.

Reading guide: `facts` holds published runs and priors, `head` the sizes, `stages` how long each stage takes on a site,
`sites` the local GPUs and rented nodes, `value` what the head is worth, `report` the answer.
"""
