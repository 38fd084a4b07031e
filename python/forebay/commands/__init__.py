"""Commands, one module each; `forebay.cli` registers them."""
