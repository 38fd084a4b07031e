"""Networks whose packets a program sends: `forebay.Network`."""
