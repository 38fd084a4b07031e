"""The atlas: which law is best on which link.

`python -m tools.atlas DIR` writes its page and its maps from the stored runs of
`experiments/studies/atlas.toml`.
"""
