"""Commands of the control bench, one module each; `forebay.cli` registers them."""
