"""What a launch text really passes to the engine: units, compose files, manifests, scripts; parsed, never run.

Read `deployment_keys.py` (keys of the deployment file) or `inspection.py` (the full account) first; `sources.py` finds
the launches in a text, one module per format below it; `arguments.py` is the engine's argument parser;
`speculative.py` says what the engine makes of it.
"""
