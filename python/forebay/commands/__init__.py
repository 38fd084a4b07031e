"""Commands, one module each; `app` has them in their order."""
