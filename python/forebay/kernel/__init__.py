"""Laws in the Linux kernel, on a real device: a classifier before a shaper runs a law in fixed
point, or the kernel's own qdisc runs one that Linux has."""
