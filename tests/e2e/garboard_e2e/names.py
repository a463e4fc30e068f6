"""What the parts of the product are called: programs, processes and files, once for all tests."""

COMMAND, SUPERVISOR, INIT, QEMU = "garboard", "garboard-launcher", "garboard-init", "qemu-system"
# The command's part for clusters, as a program of its own.
PLUGIN = "kubectl-garboard"
# The page in the browser, as a cluster serves it.
DASHBOARD = "garboard-dashboard"
# The background process of a machine on a bare host, and its log in the machine's directory.
SHIM, SHIM_LOG = "garboard-shim", "shim.log"
# What has to lie in one directory for the command to work.
INSTALLED = (COMMAND, SHIM, SUPERVISOR, INIT)
# The processes of one machine.
PROCESSES = (QEMU, INIT, SHIM, SUPERVISOR)
