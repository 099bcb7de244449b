from hypothesis import settings

# The same examples in every run, and no deadline: a busy machine must not fail a test.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
