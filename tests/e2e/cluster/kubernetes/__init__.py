"""Garboard on a real two-node Kubernetes, through kubectl: what is applied runs, is reached, stops and goes, and what
kubectl shows of it is true. What happens when things break is for `storm`."""
