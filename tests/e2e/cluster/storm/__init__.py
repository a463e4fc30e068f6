"""Garboard on a real two-node Kubernetes while things break: no machine is lost, none runs twice, no disk has two
writers, and every status is true in the end. What is seen is recorded all the time, and the model judges it."""
