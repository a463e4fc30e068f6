"""Attackers of the product, what they try, and what is looked at meanwhile. `pod/` and `qemu.py` stand alone: they run
in a pod, or in QEMU's place, with Python and nothing else."""
