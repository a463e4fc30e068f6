"""What a tenant's pod that has the node agent's socket may try. It runs in such a pod, with Python alone:

  python3 -B -m pod ATTEMPT [ARGUMENT…]

Each attempt prints what was answered, one line each, and ends with 1 when the agent let something through or kept it
waiting. The agent's socket is where the device plugin mounts it, or at GARBOARD_AGENT.
"""
